# cmake --install, of which scripts/wheel makes packages: wheel, .deb, .tar.gz (docs/install.md).
#   bin/dslaunch, bin/dsworker      the programs, side by side
#   lib/dslaunch/                   modules that the programs open on demand. Always ../lib/dslaunch from bin, so not
#                                   CMAKE_INSTALL_LIBDIR, which on Debian names the architecture under /usr.
#   share/dslaunch/                 configs, tools; python/dslaunch, the package for `import dslaunch`
#   share/doc/dslaunch/             README and docs
# LibTorch is not packaged (2 GB): an installed dsworker finds it through its RUNPATH (dsl_find_beside_package), and
# dslaunch looks in more places (lib/launch/process/torch_libraries.hpp).
include(GNUInstallDirs)
foreach(program dslaunch dsworker)
  if(TARGET ${program})
    install(TARGETS ${program} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  endif()
endforeach()
foreach(module dslaunch_ssh dslaunch_gloo dslaunch_cuda)
  if(TARGET ${module})
    install(TARGETS ${module} LIBRARY DESTINATION lib/dslaunch)
  endif()
endforeach()
foreach(folder configs tools)
  install(DIRECTORY ${folder} DESTINATION ${CMAKE_INSTALL_DATADIR}/dslaunch USE_SOURCE_PERMISSIONS
          PATTERN "__pycache__" EXCLUDE)
endforeach()
install(DIRECTORY python DESTINATION ${CMAKE_INSTALL_DATADIR}/dslaunch PATTERN "__pycache__" EXCLUDE)
install(FILES README.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY docs DESTINATION ${CMAKE_INSTALL_DOCDIR} PATTERN "results" EXCLUDE)
