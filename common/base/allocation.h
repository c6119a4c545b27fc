// How a process that computes keeps its memory.
#pragma once

namespace manta {

// A step allocates arrays as large as the last one's: what is freed is kept, instead of being given back to the system
// page by page and cleared by it again. First thing in main.
void KeepFreedMemory();

}  // namespace manta
