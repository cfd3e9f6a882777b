# Finds the MPIs of this machine. Debian installs Open MPI and MPICH side by side, so the compiler wrappers provide the
# flags of each; elsewhere -DLOCKSTEP_MPICXX_openmpi=... and -DLOCKSTEP_MPICXX_mpich=... name them.
#
# lockstep_find_mpi(<openmpi|mpich> <result>): the target to link with, or an empty string.
set(LOCKSTEP_MPI_PLUGIN_FOLDER ${PROJECT_BINARY_DIR}/lib/lockstep)  # of the build tree

function(lockstep_find_mpi engine result)
  set(${result} "" PARENT_SCOPE)
  find_program(LOCKSTEP_MPICXX_${engine} mpicxx.${engine} DOC "The C++ compiler wrapper of ${engine}")
  if(NOT LOCKSTEP_MPICXX_${engine})
    return()
  endif()
  if(NOT TARGET lockstep_found_${engine})
    execute_process(COMMAND ${LOCKSTEP_MPICXX_${engine}} -show OUTPUT_VARIABLE flags OUTPUT_STRIP_TRAILING_WHITESPACE)
    separate_arguments(flags UNIX_COMMAND "${flags}")
    set(includes ${flags})
    list(FILTER includes INCLUDE REGEX "^-I")
    list(TRANSFORM includes REPLACE "^-I" "")
    # Only the C library is used; Open MPI 6 has it in two parts.
    set(libraries ${flags})
    list(FILTER libraries INCLUDE REGEX "^-(L.+|lmpi|lmpich|lopen_mpi)$")
    add_library(lockstep_found_${engine} INTERFACE)
    target_include_directories(lockstep_found_${engine} SYSTEM INTERFACE ${includes})
    target_compile_definitions(lockstep_found_${engine} INTERFACE OMPI_SKIP_MPICXX MPICH_SKIP_MPICXX)
    target_link_libraries(lockstep_found_${engine} INTERFACE ${libraries})
  endif()
  set(${result} lockstep_found_${engine} PARENT_SCOPE)
endfunction()
