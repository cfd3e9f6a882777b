# One target per layer. The folder src/<layer> is the layer: every .cpp in it belongs to the target,
# x_test.cpp goes to the layer's test program, x_fuzz.cpp becomes a fuzz target.
include(GNUInstallDirs)
find_package(Threads REQUIRED)

# The compile options of all our targets.
add_library(lockstep_compile_options INTERFACE)
target_compile_features(lockstep_compile_options INTERFACE cxx_std_20)
target_compile_options(lockstep_compile_options INTERFACE -Wall -Wextra)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # GCC 12 warns about overlapping copies in std::string's operator+ at -O3, falsely (GCC bug 105651).
  target_compile_options(lockstep_compile_options INTERFACE -Wno-restrict)
endif()
if(LOCKSTEP_WARNINGS_AS_ERRORS)
  target_compile_options(lockstep_compile_options INTERFACE -Werror)
endif()
if(LOCKSTEP_SANITIZE)
  # Every finding of a sanitizer ends the program: one that is only printed would not fail a test.
  target_compile_options(lockstep_compile_options INTERFACE
    -fsanitize=${LOCKSTEP_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  target_link_options(lockstep_compile_options INTERFACE -fsanitize=${LOCKSTEP_SANITIZE})
  # The kernels for the baseline instruction set only: the others come from the same templates, and
  # instrumented they take minutes each to compile.
  target_compile_definitions(lockstep_compile_options INTERFACE HWY_COMPILE_ONLY_STATIC)
endif()
if(LOCKSTEP_BUILD_FUZZERS)  # instrumented everywhere: coverage is what guides a fuzzer
  target_compile_options(lockstep_compile_options INTERFACE
    -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer -g)
  target_link_options(lockstep_compile_options INTERFACE -fsanitize=address,undefined)
endif()

# lockstep_compile_together(<target> <files>): compiles this many of the target's files as one. Headers take most of the
# compiler's time, so this is three times as fast. -DCMAKE_UNITY_BUILD=OFF compiles each file by itself. Files whose
# property SKIP_UNITY_BUILD_INCLUSION is set before this call, and sources that are added after it, stay alone.
#
# CMake's own unity files name their sources by absolute path, so that ccache would find nothing that another checkout
# has compiled. These name them relative to the build folder.
function(lockstep_compile_together target files)
  if(DEFINED CMAKE_UNITY_BUILD)
    return()
  endif()
  get_target_property(sources ${target} SOURCES)
  get_target_property(folder ${target} SOURCE_DIR)
  set(remaining)  # the target's sources afterwards
  set(together)
  foreach(source IN LISTS sources)
    if(source MATCHES "^\\$<" OR NOT source MATCHES "\\.cpp$")
      list(APPEND remaining "${source}")
      continue()
    endif()
    cmake_path(ABSOLUTE_PATH source BASE_DIRECTORY ${folder} NORMALIZE)
    get_source_file_property(alone ${source} TARGET_DIRECTORY ${target} SKIP_UNITY_BUILD_INCLUSION)
    if(alone)
      list(APPEND remaining ${source})
    else()
      list(APPEND together ${source})
    endif()
  endforeach()
  set(unity_folder ${CMAKE_CURRENT_BINARY_DIR}/together/${target})
  list(LENGTH together count)
  set(first 0)
  set(batch 0)
  while(first LESS count)
    list(SUBLIST together ${first} ${files} members)
    set(text "")
    foreach(member IN LISTS members)
      file(RELATIVE_PATH path ${unity_folder} ${member})
      string(APPEND text "#include \"${path}\"\n")
    endforeach()
    file(CONFIGURE OUTPUT ${unity_folder}/${batch}.cpp CONTENT "${text}" @ONLY)  # written only if it changes
    list(APPEND remaining ${unity_folder}/${batch}.cpp)
    math(EXPR first "${first} + ${files}")
    math(EXPR batch "${batch} + 1")
  endwhile()
  set_property(TARGET ${target} PROPERTY SOURCES ${remaining})
  # g++ takes an included file for a header, and warns about anonymous namespaces in it.
  target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
endfunction()

# lockstep_layer(<name> [DEPENDS <lower layers>...] [LINK <libraries>...])
function(lockstep_layer name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "DEPENDS;LINK")
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${name}/*.cpp)
  set(tests ${sources})
  set(fuzzers ${sources})
  list(FILTER sources EXCLUDE REGEX "_(test|fuzz)\\.cpp$")
  list(FILTER tests INCLUDE REGEX "_test\\.cpp$")
  list(FILTER fuzzers INCLUDE REGEX "_fuzz\\.cpp$")
  # Highway compiles these once for each instruction set, by including them again.
  set(kernels ${sources})
  list(FILTER kernels INCLUDE REGEX "/kernels/")
  set_source_files_properties(${kernels} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)

  if(NOT sources)  # a layer that is still empty
    file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/${name}_empty.cpp "")
    set(sources ${CMAKE_CURRENT_BINARY_DIR}/${name}_empty.cpp)
  endif()
  add_library(lockstep_${name} OBJECT ${sources})
  set_target_properties(lockstep_${name} PROPERTIES POSITION_INDEPENDENT_CODE ON)
  lockstep_compile_together(lockstep_${name} 12)
  target_include_directories(lockstep_${name}
    PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/src>)
  target_link_libraries(lockstep_${name} PRIVATE lockstep_compile_options)
  foreach(layer IN LISTS arg_DEPENDS)
    target_link_libraries(lockstep_${name} PUBLIC lockstep_${layer})
  endforeach()
  target_link_libraries(lockstep_${name} PUBLIC ${arg_LINK} Threads::Threads)
  set_property(GLOBAL APPEND PROPERTY LOCKSTEP_LAYER_TESTS_${name} ${tests})
  set_property(GLOBAL APPEND PROPERTY LOCKSTEP_LAYER_FUZZERS_${name} ${fuzzers})
  set_property(GLOBAL APPEND PROPERTY LOCKSTEP_LAYERS ${name})

  # The layer and all below it, for programs that need no more than these.
  set(closure ${name})
  foreach(layer IN LISTS arg_DEPENDS)
    get_property(below GLOBAL PROPERTY LOCKSTEP_LAYER_CLOSURE_${layer})
    list(APPEND closure ${below})
  endforeach()
  list(REMOVE_DUPLICATES closure)
  set_property(GLOBAL PROPERTY LOCKSTEP_LAYER_CLOSURE_${name} ${closure})
endfunction()
