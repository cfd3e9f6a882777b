# Finds LibTorch: Debian's libtorch-dev, or any other through CMAKE_PREFIX_PATH. Sets LOCKSTEP_WITH_DDP
# and creates lockstep_torch, which has LibTorch's libraries, and its headers as system headers (without
# their warnings).
set(LOCKSTEP_WITH_DDP OFF)
if(LOCKSTEP_BUILD_DDP STREQUAL "OFF" OR LOCKSTEP_BUILD_FUZZERS)
  return()
endif()

set(CMAKE_FIND_PACKAGE_TARGETS_GLOBAL ON)
find_package(Torch QUIET)
if(NOT Torch_FOUND)
  if(LOCKSTEP_BUILD_DDP STREQUAL "AUTO")
    message(STATUS "lockstep: LibTorch was not found, so only the engine is built (Debian: apt-get install libtorch-dev)")
    return()
  endif()
  message(FATAL_ERROR "lockstep: LOCKSTEP_BUILD_DDP is on, but LibTorch was not found. Debian: apt-get install libtorch-dev; "
    "a LibTorch of your own: -DCMAKE_PREFIX_PATH=/path/to/libtorch")
endif()
set(LOCKSTEP_WITH_DDP ON)
message(STATUS "lockstep: LibTorch ${Torch_VERSION} from ${Torch_DIR}")

add_library(lockstep_torch INTERFACE)
target_include_directories(lockstep_torch SYSTEM INTERFACE ${TORCH_INCLUDE_DIRS})
target_link_libraries(lockstep_torch INTERFACE ${TORCH_LIBRARIES})
separate_arguments(torch_flags UNIX_COMMAND "${TORCH_CXX_FLAGS}")
target_compile_options(lockstep_torch INTERFACE ${torch_flags})
