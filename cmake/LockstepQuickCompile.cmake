# How programs of this tree are compiled that are not installed: for the compiler's speed, where the library is compiled
# for its own. Less optimisation, little debug information, and two precompiled headers: one for all programs without
# torch, one for those with it.
if(LOCKSTEP_BUILD_TESTS)
  set(CMAKE_FIND_PACKAGE_TARGETS_GLOBAL ON)
  find_package(GTest REQUIRED)
endif()

# Linking with GNU ld takes a tenth of the time of a build, and most programs are linked once and run once.
find_program(LOCKSTEP_FAST_LINKER mold)
set(lockstep_fast_link_options)
if(LOCKSTEP_FAST_LINKER AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND NOT LOCKSTEP_SANITIZE)
  set(lockstep_fast_link_options -fuse-ld=mold)
endif()

# lockstep_shared_header(<name> <libraries and options>... HEADERS <headers>...): an otherwise empty target that makes a
# precompiled header. What reuses it must be compiled with the same options and definitions.
function(lockstep_shared_header name)
  if(TARGET ${name})
    return()
  endif()
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "LINK;OPTIONS;HEADERS")
  file(WRITE ${PROJECT_BINARY_DIR}/${name}.cpp "")
  add_library(${name} OBJECT ${PROJECT_BINARY_DIR}/${name}.cpp)
  target_compile_options(${name} PRIVATE ${arg_OPTIONS})
  target_link_libraries(${name} PRIVATE lockstep_compile_options ${arg_LINK})
  target_precompile_headers(${name} PRIVATE ${arg_HEADERS})
endfunction()

# Tests without torch.
function(lockstep_quick_to_compile target)
  set(options -O0 -g1)
  set(libraries fmt::fmt GTest::gtest GTest::gmock)
  lockstep_shared_header(lockstep_test_header LINK ${libraries} OPTIONS ${options} HEADERS <gmock/gmock.h> <gtest/gtest.h>
    <fmt/format.h> <algorithm> <array> <atomic> <chrono> <condition_variable> <filesystem> <fstream> <functional>
    <iostream> <map> <memory> <mutex> <optional> <random> <set> <span> <sstream> <string> <thread> <variant> <vector>)
  target_compile_options(${target} PRIVATE ${options})
  target_link_options(${target} PRIVATE ${lockstep_fast_link_options})
  target_link_libraries(${target} PRIVATE ${libraries})
  target_precompile_headers(${target} REUSE_FROM lockstep_test_header)
endfunction()

# Tests, examples and benchmarks with torch, whose headers take most of the compiler's time; most of that is optimisation
# and debug information.
function(lockstep_torch_quick_to_compile target)
  set(options -O0 -g0)
  set(libraries fmt::fmt GTest::gtest GTest::gmock)
  lockstep_shared_header(lockstep_torch_test_header LINK lockstep_torch ${libraries} OPTIONS ${options}
    HEADERS <torch/torch.h> <gmock/gmock.h> <gtest/gtest.h>)
  target_compile_options(${target} PRIVATE ${options})
  target_link_options(${target} PRIVATE ${lockstep_fast_link_options})
  target_link_libraries(${target} PRIVATE ${libraries})
  target_precompile_headers(${target} REUSE_FROM lockstep_torch_test_header)
endfunction()

# lockstep_torch_program(<target>): examples and benchmarks. In a release build, and in one without tests, they are
# compiled as the library is.
function(lockstep_torch_program target)
  if(LOCKSTEP_BUILD_TESTS AND NOT CMAKE_BUILD_TYPE STREQUAL "Release")
    lockstep_torch_quick_to_compile(${target})
    return()
  endif()
  # Without the same flags and definitions the library's precompiled header would not fit.
  target_compile_options(${target} PRIVATE -fPIC)
  target_link_libraries(${target} PRIVATE fmt::fmt spdlog::spdlog)
  target_precompile_headers(${target} REUSE_FROM lockstep_ddp)
endfunction()
