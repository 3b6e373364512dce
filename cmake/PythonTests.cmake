# dsl_python_tests(LABEL [TIMEOUT seconds] [TOGETHER FILE:CLASS+CLASS...] [QUICK NAME...] [SLOW NAME...]
#                  [ENVIRONMENT NAME=VALUE...])
# makes a ctest entry LABEL.FILE.CLASS of every class of tests in the test_*.py of this folder (FILE is without test_),
# which PyTorch's Python runs. TOGETHER: one entry FILE.CLASS-CLASS for classes that take less time than Python takes to
# start with PyTorch (2 s on one core). QUICK: entries of `scripts/test --quick`; SLOW: those of `--slow` alone.
# CMake reads the files again when one of them has changed, came or went, so no class can be left out.
get_filename_component(DSL_TORCH_PYTHON ${DSL_TORCH_SITE}/../../../bin/python ABSOLUTE)
set(DSL_LIST_TEST_CLASSES ${CMAKE_SOURCE_DIR}/tests/support/python/test_classes.py)

function(dsl_python_tests label)
  cmake_parse_arguments(ARG "" "TIMEOUT" "TOGETHER;QUICK;SLOW;ENVIRONMENT" ${ARGN})
  file(GLOB files CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/test_*.py)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${files} ${DSL_LIST_TEST_CLASSES})
  execute_process(COMMAND ${DSL_TORCH_PYTHON} ${DSL_LIST_TEST_CLASSES} ${files}
    OUTPUT_VARIABLE listed OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  string(REGEX REPLACE "[^\n]*/test_([^\n/]*)\\.py:" "\\1:" listed "${listed}")
  string(REPLACE "\n" ";" entries "${listed}")

  foreach(group ${ARG_TOGETHER})
    string(REGEX MATCH "^([^:]*):(.*)$" _ ${group})
    string(REPLACE "+" ";" classes ${CMAKE_MATCH_2})
    foreach(class ${classes})
      if(NOT "${CMAKE_MATCH_1}:${class}" IN_LIST entries)
        message(FATAL_ERROR "TOGETHER names the class ${class}, which test_${CMAKE_MATCH_1}.py does not have")
      endif()
      list(REMOVE_ITEM entries "${CMAKE_MATCH_1}:${class}")
    endforeach()
    list(APPEND entries ${group})
  endforeach()

  set(marked ${ARG_QUICK} ${ARG_SLOW})
  foreach(entry ${entries})
    string(REGEX MATCH "^([^:]*):(.*)$" _ ${entry})
    set(file ${CMAKE_MATCH_1})
    string(REPLACE "+" ";" classes ${CMAKE_MATCH_2})
    string(REPLACE ":" "." name ${entry})
    string(REPLACE "+" "-" name ${name})
    set(labels ${label})
    set(configurations)
    if(name IN_LIST ARG_SLOW)
      list(APPEND labels slow)
      set(configurations CONFIGURATIONS slow)
    endif()
    if(name IN_LIST ARG_QUICK)
      list(APPEND labels quick)
    endif()
    list(REMOVE_ITEM marked ${name})
    add_test(NAME ${label}.${name} ${configurations}
      COMMAND ${DSL_TORCH_PYTHON} ${CMAKE_CURRENT_SOURCE_DIR}/test_${file}.py -v ${classes})
    set_tests_properties(${label}.${name} PROPERTIES LABELS "${labels}" TIMEOUT ${ARG_TIMEOUT} SKIP_RETURN_CODE 77
      ENVIRONMENT "DSLAUNCH_BIN=${CMAKE_BINARY_DIR}/bin;PYTHONDONTWRITEBYTECODE=1;${ARG_ENVIRONMENT}")
  endforeach()
  if(marked)
    message(FATAL_ERROR "QUICK and SLOW name no entry of ${label}: ${marked}")
  endif()
endfunction()
