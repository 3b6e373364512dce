# dsl_room(NAME SOURCES a.cpp ... DEPS dsl_base ... [PRIVATE_DEPS ...] [SEES tensors|torch])
# makes the static library dsl_NAME. SEES: how much of LibTorch its files see, see dsl_precompile().
function(dsl_room name)
  cmake_parse_arguments(ARG "" "SEES" "SOURCES;DEPS;PRIVATE_DEPS" ${ARGN})
  add_library(dsl_${name} STATIC ${ARG_SOURCES})
  target_include_directories(dsl_${name} PUBLIC ${CMAKE_SOURCE_DIR}/lib)
  target_link_libraries(dsl_${name} PUBLIC ${ARG_DEPS} PRIVATE dsl_warnings dsl_sanitizers ${ARG_PRIVATE_DEPS})
  dsl_precompile(dsl_${name} ${ARG_SEES})
endfunction()

# dsl_unit_test(ROOM SOURCES ... DEPS ... [LABELS ...] [SEES tensors|torch])
# makes one Catch2 program for a room, registered with ctest as unit.ROOM.
function(dsl_unit_test room)
  cmake_parse_arguments(ARG "" "SEES;TIMEOUT" "SOURCES;DEPS;LABELS" ${ARGN})
  string(REPLACE "/" "_" target test_${room})
  add_executable(${target} ${ARG_SOURCES})
  if(NOT TARGET unit_tests)
    add_custom_target(unit_tests)  # all of them, for builds of nothing else (scripts/test --sanitize)
  endif()
  add_dependencies(unit_tests ${target})
  target_link_libraries(${target} PRIVATE ${ARG_DEPS} dsl_test_main dsl_warnings dsl_sanitizers)
  target_include_directories(${target} PRIVATE ${CMAKE_SOURCE_DIR}/lib ${CMAKE_SOURCE_DIR}/tests)
  target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O1>)  # compiles in less time than -O3 ever saves here
  dsl_precompile(${target} ${ARG_SEES})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  string(REPLACE "/" "." dotted ${room})
  add_test(NAME unit.${dotted} COMMAND ${target} --durations yes --min-duration 1)
  # Tensors are tiny: a second thread of OpenMP only spins, on a core that another test needs.
  set_tests_properties(unit.${dotted} PROPERTIES TIMEOUT ${ARG_TIMEOUT} LABELS "unit;${ARG_LABELS}"
    ENVIRONMENT OMP_NUM_THREADS=1)
endfunction()

# dsl_precompile(TARGET [tensors|torch]): the target's files are compiled with that header of cmake/precompiled, else
# with plain.hpp, which all targets of its kind share. Each kind holds the one before. The smallest that will do: with
# g++ every file pays for what its header holds (plain 0.3 s, tensors 2 s, torch 6 s; without one, tensors and torch
# cost 10 to 20 s).
function(dsl_precompile target)
  set(kind plain)
  if(ARGN)
    set(kind ${ARGN})
    set(libtorch dsl::torch_cpu)
  endif()
  if(NOT TARGET dsl_precompiled_${kind})
    add_library(dsl_precompiled_${kind} STATIC ${CMAKE_SOURCE_DIR}/cmake/precompiled/empty.cpp)
    target_link_libraries(dsl_precompiled_${kind} PRIVATE dsl_fmt dsl_warnings dsl_sanitizers ${libtorch})
    target_precompile_headers(dsl_precompiled_${kind} PRIVATE ${CMAKE_SOURCE_DIR}/cmake/precompiled/${kind}.hpp)
  endif()
  target_link_libraries(${target} PRIVATE ${libtorch})
  # One flavour of position independence for libraries and programs (which would be compiled with -fPIE), or the header
  # would not fit both.
  set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
  target_compile_options(${target} PRIVATE -fPIC)
  target_precompile_headers(${target} REUSE_FROM dsl_precompiled_${kind})
endfunction()
