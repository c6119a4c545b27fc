// The object that carries the precompiled ATen header; see dependencies.cmake.
