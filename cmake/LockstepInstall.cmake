# Install and export: another project calls find_package(lockstep COMPONENTS engine ddp) and links
# lockstep::engine or lockstep::ddp.
include(CMakePackageConfigHelpers)
include(GNUInstallDirs)

set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/lockstep)

# lockstepConfig.cmake needs to know whether users link the engine's own dependencies.
get_target_property(LOCKSTEP_ENGINE_TYPE lockstep_engine TYPE)

install(TARGETS lockstep_engine EXPORT lockstep_engine_targets COMPONENT engine)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/lockstep DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT engine
  FILES_MATCHING PATTERN "*.h")
install(EXPORT lockstep_engine_targets NAMESPACE lockstep:: DESTINATION ${package_folder} COMPONENT engine)

# The engine's users have no torch: DDP's targets are in a file of their own.
set(LOCKSTEP_COMPONENTS engine)
if(LOCKSTEP_WITH_DDP)
  list(APPEND LOCKSTEP_COMPONENTS ddp)
  install(TARGETS lockstep_ddp EXPORT lockstep_ddp_targets COMPONENT ddp)
  install(EXPORT lockstep_ddp_targets NAMESPACE lockstep:: DESTINATION ${package_folder} COMPONENT ddp)
  # Loaded at run time, so they are no targets of users.
  get_property(engines GLOBAL PROPERTY LOCKSTEP_MPI_ENGINES)
  foreach(engine IN LISTS engines)
    install(TARGETS lockstep_mpi_${engine} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/lockstep COMPONENT ddp)
  endforeach()
endif()

set(LOCKSTEP_PLUGIN_FOLDER ${CMAKE_INSTALL_LIBDIR}/lockstep)
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/lockstepConfig.cmake.in
  ${PROJECT_BINARY_DIR}/lockstepConfig.cmake INSTALL_DESTINATION ${package_folder} PATH_VARS LOCKSTEP_PLUGIN_FOLDER)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/lockstepConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/lockstepConfig.cmake ${PROJECT_BINARY_DIR}/lockstepConfigVersion.cmake
  DESTINATION ${package_folder} COMPONENT engine)
