# manta_actor_sdk(): what actors that are built outside of this tree need, in the build folder.
#   MantaConfig.cmake    find_package(Manta REQUIRED) with Manta_DIR naming the folder gives the target manta::actor
#   python/manta         the Python package: sdk/python and the messages of proto/manta/v1 (target python_sdk)
function(manta_actor_sdk)
  set_target_properties(manta_actor PROPERTIES EXPORT_NAME actor)
  export(TARGETS manta_actor manta_call manta_call_core manta_rpc manta_metrics manta_base manta_proto
         NAMESPACE manta:: FILE "${CMAKE_BINARY_DIR}/MantaTargets.cmake")
  configure_file("${CMAKE_SOURCE_DIR}/cmake/MantaConfig.cmake.in" "${CMAKE_BINARY_DIR}/MantaConfig.cmake" @ONLY)

  file(GLOB sources CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/sdk/python/manta/*.py")
  file(GLOB protos CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/proto/manta/v1/*.proto")
  set(script "${CMAKE_SOURCE_DIR}/sdk/python/build.sh")
  set(stamp "${CMAKE_BINARY_DIR}/python/built")
  add_custom_command(OUTPUT "${stamp}"
    COMMAND ${CMAKE_COMMAND} -E env "PROTOC=$<TARGET_FILE:protobuf::protoc>" "${script}" "${CMAKE_BINARY_DIR}/python"
    COMMAND ${CMAKE_COMMAND} -E touch "${stamp}"
    DEPENDS ${sources} ${protos} "${script}" VERBATIM)
  add_custom_target(python_sdk ALL DEPENDS "${stamp}")
endfunction()
