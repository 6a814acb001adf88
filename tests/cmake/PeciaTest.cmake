# SPDX-License-Identifier: Apache-2.0
# For mpiexec, also of root and for more ranks than cores, whose waits then leave the cores to others. Without a fast
# network Open MPI takes ob1, but each start looks for such a network for 0.2 s first.
set(PECIA_MPI_ENVIRONMENT OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
  OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_mpi_yield_when_idle=1 OMPI_MCA_pml=ob1)

# For Python tests that run the program. CTest gives it to each as part of its ENVIRONMENT.
set(PECIA_RUN_ENVIRONMENT PECIA_PROGRAM=$<TARGET_FILE:pecia> PECIA_SOURCE=${PROJECT_SOURCE_DIR}
  PECIA_MPIEXEC=${MPIEXEC_EXECUTABLE} PYTHONDONTWRITEBYTECODE=1 OMP_NUM_THREADS=1 ${PECIA_MPI_ENVIRONMENT}
  XDG_CACHE_HOME=${PROJECT_BINARY_DIR}/tests/cache)

# Seconds after which a test is stopped: three times what it takes alone on two quiet cores, 300 at least. The tests named
# here also begin first. Tests with label long name theirs where they are added.
set(PECIA_TIME_LIMITS
  slurm.results 900 slurm.drains 900 slurm.failures 900 slurm.chain 900 slurm.wall_time 600
  runs.stopping 600 test_kernels_emulated 500 runs.faults 400 test_modes.ranks_8 500 test_layout_modes.ranks_8 500
  test_modes.emulated 500
  scripts.base 400 scripts.books 400 scripts.report 400 scripts.setup 600)

# pecia_limit(TEST): sets its time limit; five times as much with sanitizers.
function(pecia_limit test)
  set(seconds 300)
  list(FIND PECIA_TIME_LIMITS ${test} at)
  if(at GREATER_EQUAL 0)
    math(EXPR at "${at} + 1")
    list(GET PECIA_TIME_LIMITS ${at} seconds)
    set_tests_properties(${test} PROPERTIES COST ${seconds})
  endif()
  if(PECIA_SANITIZE)
    math(EXPR seconds "${seconds} * 5")
  endif()
  set_tests_properties(${test} PROPERTIES TIMEOUT ${seconds})
endfunction()

# pecia_skip_test(NAME LABEL REASON): a test that this machine cannot run shows as skipped.
function(pecia_skip_test name label reason)
  add_test(NAME ${name} COMMAND sh -c "echo 'skipped: ${reason}'; exit 77")
  set_tests_properties(${name} PROPERTIES LABELS "${label}" SKIP_RETURN_CODE 77)
endfunction()

# pecia_compile_test(TARGET): with precompiled headers, and up to four sources together. So names in the unnamed
# namespaces of one target must differ.
function(pecia_compile_test target)
  target_precompile_headers(${target} REUSE_FROM pecia_test_support)
  if(PECIA_UNITY)
    pecia_unity(${target} 4)
  endif()
endfunction()

# pecia_add_test(NAME [RANKS 1 2 4] SOURCES … LINKS … [LABELS …])
#
# A GoogleTest program. Without RANKS it is run once, without MPI. With RANKS it is linked to
# tests/support's MPI main and registered once per rank count as NAME.ranks_N, label ranks_N.
function(pecia_add_test name)
  cmake_parse_arguments(ARG "" "" "RANKS;SOURCES;LINKS;LABELS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  target_link_libraries(${name} PRIVATE pecia_test_support ${ARG_LINKS})
  pecia_compile_test(${name})
  if(NOT ARG_RANKS)
    target_link_libraries(${name} PRIVATE GTest::gtest_main)
    add_test(NAME ${name} COMMAND ${name})
    pecia_limit(${name})
    set_tests_properties(${name} PROPERTIES LABELS "unit;${ARG_LABELS}" ENVIRONMENT "OMP_NUM_THREADS=2")
    return()
  endif()
  target_link_libraries(${name} PRIVATE pecia_test_mpi_main)
  foreach(ranks ${ARG_RANKS})
    add_test(NAME ${name}.ranks_${ranks}
             COMMAND ${MPIEXEC_EXECUTABLE} ${MPIEXEC_NUMPROC_FLAG} ${ranks} --bind-to none
                     ${CMAKE_CROSSCOMPILING_EMULATOR} $<TARGET_FILE:${name}>)
    pecia_limit(${name}.ranks_${ranks})
    set_tests_properties(${name}.ranks_${ranks} PROPERTIES
      PROCESSORS ${ranks} LABELS "ranks_${ranks};${ARG_LABELS}"
      ENVIRONMENT "OMP_NUM_THREADS=1;${PECIA_MPI_ENVIRONMENT}")
  endforeach()
endfunction()

# pecia_add_full_matrix(NAME RANKS …): the test once more under the label `long`, with all cases instead of some
# (tests/support/full_matrix.hpp).
function(pecia_add_full_matrix name)
  cmake_parse_arguments(ARG "" "" "RANKS" ${ARGN})
  foreach(ranks ${ARG_RANKS})
    add_test(NAME ${name}.all.ranks_${ranks}
             COMMAND ${MPIEXEC_EXECUTABLE} ${MPIEXEC_NUMPROC_FLAG} ${ranks} --bind-to none
                     ${CMAKE_CROSSCOMPILING_EMULATOR} $<TARGET_FILE:${name}>)
    set_tests_properties(${name}.all.ranks_${ranks} PROPERTIES
      TIMEOUT 3600 PROCESSORS ${ranks} LABELS "ranks_${ranks};long"
      ENVIRONMENT "PECIA_FULL_MATRIX=1;OMP_NUM_THREADS=1;${PECIA_MPI_ENVIRONMENT}")
  endforeach()
endfunction()
