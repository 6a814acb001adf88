# SPDX-License-Identifier: Apache-2.0
# pecia_add_test(NAME [RANKS 1 2 4] SOURCES … LINKS … [LABELS …] [TIMEOUT s])
#
# A GoogleTest program. Without RANKS it is run once, without MPI. With RANKS it is linked to
# tests/support's MPI main and registered once per rank count as NAME.ranks_N, label ranks_N.
function(pecia_add_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT" "RANKS;SOURCES;LINKS;LABELS" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  if(PECIA_SANITIZE)
    math(EXPR ARG_TIMEOUT "${ARG_TIMEOUT} * 5")
  endif()
  add_executable(${name} ${ARG_SOURCES})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  target_link_libraries(${name} PRIVATE pecia_test_support ${ARG_LINKS})
  if(NOT ARG_RANKS)
    target_link_libraries(${name} PRIVATE GTest::gtest_main)
    add_test(NAME ${name} COMMAND ${name})
    set_tests_properties(${name} PROPERTIES TIMEOUT ${ARG_TIMEOUT} LABELS "unit;${ARG_LABELS}"
                         ENVIRONMENT "OMP_NUM_THREADS=2")
    return()
  endif()
  target_link_libraries(${name} PRIVATE pecia_test_mpi_main)
  foreach(ranks ${ARG_RANKS})
    add_test(NAME ${name}.ranks_${ranks}
             COMMAND ${MPIEXEC_EXECUTABLE} ${MPIEXEC_NUMPROC_FLAG} ${ranks} --bind-to none
                     $<TARGET_FILE:${name}>)
    set_tests_properties(${name}.ranks_${ranks} PROPERTIES
      TIMEOUT ${ARG_TIMEOUT} PROCESSORS ${ranks} LABELS "ranks_${ranks};${ARG_LABELS}"
      ENVIRONMENT "OMP_NUM_THREADS=1;OMPI_ALLOW_RUN_AS_ROOT=1;OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1;OMPI_MCA_rmaps_base_oversubscribe=1;OMPI_MCA_mpi_yield_when_idle=1")
  endforeach()
endfunction()
