# Install and export: another project says find_package(lockstep COMPONENTS engine ddp) and links
# lockstep::engine or lockstep::ddp.
include(CMakePackageConfigHelpers)
include(GNUInstallDirs)

set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/lockstep)

# lockstepConfig.cmake must know whether users link the engine's own dependencies.
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
endif()

configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/lockstepConfig.cmake.in
  ${PROJECT_BINARY_DIR}/lockstepConfig.cmake INSTALL_DESTINATION ${package_folder})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/lockstepConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/lockstepConfig.cmake ${PROJECT_BINARY_DIR}/lockstepConfigVersion.cmake
  DESTINATION ${package_folder} COMPONENT engine)
