# dsl_python_tests(LABEL [WITH_TORCH] TIMEOUT seconds [TOGETHER FILE:CLASS+CLASS... FILE,FILE:*...] [QUICK NAME...]
#                  [SLOW FILE.CLASS...] [ENVIRONMENT NAME=VALUE...])
# makes a ctest entry LABEL.FILE.CLASS of every class of tests in the test_*.py of this folder (FILE is without test_),
# which PyTorch's Python runs. TOGETHER: one entry FILE.CLASS-CLASS of several classes, or FILE-FILE of all that are left
# of files, since each process pays for the start of PyTorch and for pools of ranks of its own. WITH_TORCH: all files use
# PyTorch and have no main program of their own (run_tests.py is theirs). QUICK: entries of `scripts/test --quick`; SLOW:
# those of `--slow` alone.
# CMake reads the files again when one of them has changed, came or went, so no class can be left out.
get_filename_component(DSL_TORCH_PYTHON ${DSL_TORCH_SITE}/../../../bin/python ABSOLUTE)
set(DSL_LIST_TEST_CLASSES ${CMAKE_SOURCE_DIR}/tests/support/python/test_classes.py)

function(dsl_python_tests label)
  cmake_parse_arguments(ARG "WITH_TORCH" "TIMEOUT" "TOGETHER;QUICK;SLOW;ENVIRONMENT" ${ARGN})
  file(GLOB files CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/test_*.py)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${files} ${DSL_LIST_TEST_CLASSES})
  execute_process(
    COMMAND ${DSL_TORCH_PYTHON} ${DSL_LIST_TEST_CLASSES} ${files} --together ${ARG_TOGETHER} --alone ${ARG_SLOW}
    OUTPUT_VARIABLE entries OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  string(REPLACE "\n" ";" entries "${entries}")

  set(marked ${ARG_QUICK} ${ARG_SLOW})
  foreach(entry ${entries})
    separate_arguments(words UNIX_COMMAND ${entry})
    list(POP_FRONT words name)
    list(TRANSFORM words PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/ REGEX "\\.py$")
    if(ARG_WITH_TORCH)
      list(PREPEND words ${CMAKE_SOURCE_DIR}/tests/support/python/run_tests.py)
    else()
      list(INSERT words 1 -v)
    endif()
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
      COMMAND ${DSL_TORCH_PYTHON} ${words})
    set_tests_properties(${label}.${name} PROPERTIES LABELS "${labels}" TIMEOUT ${ARG_TIMEOUT} SKIP_RETURN_CODE 77
      ENVIRONMENT "DSLAUNCH_BIN=${CMAKE_BINARY_DIR}/bin;PYTHONDONTWRITEBYTECODE=1;${ARG_ENVIRONMENT}")
  endforeach()
  if(marked)
    message(FATAL_ERROR "QUICK and SLOW name no entry of ${label}: ${marked}")
  endif()
endfunction()
