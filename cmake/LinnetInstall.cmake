# Install rules, pkg-config files and CMake package. Nothing installed knows where it was installed: the tree may be moved.
include(CMakePackageConfigHelpers)

install(TARGETS linnet linnet_static EXPORT linnetTargets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY include/linnet DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
  FILES_MATCHING PATTERN "*.h" PATTERN "mpi.h" EXCLUDE)
install(FILES ${PROJECT_BINARY_DIR}/include/linnet/version.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/linnet)
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/linnet)
install(EXPORT linnetTargets NAMESPACE linnet:: DESTINATION ${package_dir})
configure_package_config_file(cmake/linnetConfig.cmake.in ${PROJECT_BINARY_DIR}/linnetConfig.cmake
  INSTALL_DESTINATION ${package_dir} NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/linnetConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/linnetConfig.cmake ${PROJECT_BINARY_DIR}/linnetConfigVersion.cmake
  DESTINATION ${package_dir})

file(RELATIVE_PATH pc_to_prefix "${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig" "${CMAKE_INSTALL_PREFIX}")
configure_file(cmake/linnet.pc.in linnet.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/linnet.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

if(TARGET linnet_mpi)
  install(TARGETS linnet_mpi EXPORT linnetMpiTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
  install(EXPORT linnetMpiTargets NAMESPACE linnet:: DESTINATION ${package_dir})
  install(FILES include/linnet/mpi.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/linnet)
  configure_file(cmake/linnet-mpi.pc.in linnet-mpi.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/linnet-mpi.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endif()

if(TARGET linnet_cuda)
  install(TARGETS linnet_cuda EXPORT linnetCudaTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
  install(EXPORT linnetCudaTargets NAMESPACE linnet:: DESTINATION ${package_dir})
endif()
