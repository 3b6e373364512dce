# Chooses the C++ compiler, before project(). clang++ instantiates what a precompiled header of LibTorch holds once,
# with the header, where g++ does so in every file that uses it: 2 s for a file of the engine instead of 8. It will do
# from 14 on, and if it finds a standard library. The sanitizers stay with g++, whose run times come with it.
if(NOT CMAKE_CXX_COMPILER AND NOT DEFINED ENV{CXX} AND NOT CMAKE_TOOLCHAIN_FILE AND NOT DSL_SANITIZE)
  find_program(DSL_CLANG clang++)
  if(DSL_CLANG)
    execute_process(COMMAND ${DSL_CLANG} -std=c++20 -fsyntax-only ${CMAKE_CURRENT_LIST_DIR}/compiler_check.cpp
      RESULT_VARIABLE _failure OUTPUT_QUIET ERROR_VARIABLE _words)
    if(_failure)
      message(STATUS "not taken: ${DSL_CLANG}, which says ${_words}")
    else()
      set(CMAKE_CXX_COMPILER ${DSL_CLANG})
    endif()
  endif()
endif()
