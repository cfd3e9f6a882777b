# cmake -D CASE=... -D SOURCE=<root> -D BUILD=<build tree> -D WORK=<scratch folder> -D MPIS=<with a plug-in, by commas> -P run.cmake
# Installs Lockstep, then builds and runs a project as a user would.
file(REMOVE_RECURSE ${WORK})
file(MAKE_DIRECTORY ${WORK})

function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE code OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT code EQUAL 0)
    message(FATAL_ERROR "${ARGN}\nended with ${code}:\n${output}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()

# build_and_run(<project> <cmake arguments>...)
function(build_and_run project)
  set(tree ${WORK}/${project}_build)
  run(${CMAKE_COMMAND} -G Ninja -S ${SOURCE}/tests/packaging/${project} -B ${tree} -DCMAKE_CXX_COMPILER=${COMPILER}
    -DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_FLAGS_DEBUG=-O0 ${ARGN})  # compiles fastest
  run(${CMAKE_COMMAND} --build ${tree})
  run(${tree}/consumer)
  if(NOT output MATCHES "lockstep [0-9.]+ refused root 7: invalid_argument: ")
    message(FATAL_ERROR "the consumer printed:\n${output}")
  endif()
endfunction()

if(CASE STREQUAL "find_package")
  run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${WORK}/prefix --component engine)
  build_and_run(find_package -DCMAKE_PREFIX_PATH=${WORK}/prefix)

elseif(CASE STREQUAL "find_package_ddp")
  run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${WORK}/prefix --component engine)
  run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${WORK}/prefix --component ddp)
  build_and_run(find_package_ddp -DCMAKE_PREFIX_PATH=${WORK}/prefix)
  string(REPLACE "," ";" engines "${MPIS}")
  foreach(engine IN LISTS engines)
    find_program(mpirun_${engine} mpirun.${engine})
    if(NOT mpirun_${engine})
      continue()
    endif()
    run(${CMAKE_COMMAND} -E env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
      LOCKSTEP_BACKEND=mpi ${mpirun_${engine}} -n 2 ${WORK}/find_package_ddp_build/consumer)
    if(NOT output MATCHES "sum 2 on backend mpi")
      message(FATAL_ERROR "the consumer printed, under mpirun.${engine}:\n${output}")
    endif()
  endforeach()

elseif(CASE STREQUAL "unknown_component")
  run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${WORK}/prefix --component engine)
  execute_process(COMMAND ${CMAKE_COMMAND} -G Ninja -S ${SOURCE}/tests/packaging/unknown_component -B ${WORK}/build
    -DCMAKE_CXX_COMPILER=${COMPILER} -DCMAKE_PREFIX_PATH=${WORK}/prefix
    RESULT_VARIABLE code OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(code EQUAL 0 OR NOT output MATCHES "no component[ \n]+\"teleport\"")
    message(FATAL_ERROR "an unknown component ended with ${code} and:\n${output}")
  endif()

elseif(CASE STREQUAL "add_subdirectory_shared")
  # One more build of the engine serves both: the shared library, in the user's tree and installed.
  build_and_run(add_subdirectory -DLOCKSTEP_SOURCE_DIR=${SOURCE} -DLOCKSTEP_BUILD_DDP=OFF -DBUILD_SHARED_LIBS=ON -DLOCKSTEP_INSTALL=ON)
  run(${CMAKE_COMMAND} --install ${WORK}/add_subdirectory_build --prefix ${WORK}/prefix --component engine)
  build_and_run(find_package -DCMAKE_PREFIX_PATH=${WORK}/prefix)

else()
  message(FATAL_ERROR "unknown CASE ${CASE}")
endif()
file(REMOVE_RECURSE ${WORK})
