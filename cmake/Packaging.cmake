# cmake --install and CPack (.deb and .tar.gz).
#   bin/dslaunch, bin/dsworker      the programs, side by side
#   lib/dslaunch/                   modules that the programs open on demand. Always ../lib/dslaunch from bin, so not
#                                   CMAKE_INSTALL_LIBDIR, which on Debian names the architecture under /usr.
#   share/dslaunch/                 configs, tools
#   share/doc/dslaunch/             README and docs
# LibTorch is not packaged (2 GB): an installed dsworker finds it where the build did, through its RUNPATH, or in the
# folder that DSLAUNCH_TORCH_LIB names.
include(GNUInstallDirs)
foreach(program dslaunch dsworker)
  if(TARGET ${program})
    install(TARGETS ${program} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  endif()
endforeach()
install(DIRECTORY ${DSL_MODULE_DIRECTORY}/ DESTINATION lib/dslaunch USE_SOURCE_PERMISSIONS
        FILES_MATCHING PATTERN "*.so")
foreach(folder configs tools)
  install(DIRECTORY ${folder} DESTINATION ${CMAKE_INSTALL_DATADIR}/dslaunch USE_SOURCE_PERMISSIONS
          PATTERN "__pycache__" EXCLUDE)
endforeach()
install(FILES README.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY docs DESTINATION ${CMAKE_INSTALL_DOCDIR} PATTERN "results" EXCLUDE)

set(CPACK_PACKAGE_NAME dslaunch)
set(CPACK_PACKAGE_CONTACT "dslaunch developers <dslaunch@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "launcher and runtime for distributed training of TorchScript models")
set(CPACK_GENERATOR "DEB;TGZ")
set(CPACK_STRIP_FILES ON)
set(CPACK_PACKAGE_DIRECTORY ${CMAKE_BINARY_DIR}/packages)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
# The modules' libraries are recommended, not needed: a host without one of them runs what does not need it.
set(CPACK_DEBIAN_PACKAGE_DEPENDS "libc6 (>= 2.36), libstdc++6 (>= 12)")
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "libgloo0, libssh-4")
include(CPack)
