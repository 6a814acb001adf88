# SPDX-License-Identifier: Apache-2.0
# Writes build_info.cpp with the commit that is checked out now. Every build runs this, and the file stays as it is where
# the commit has not changed.
#   SOURCE   the repository
#   HALF     the file, but for the commit
#   OUTPUT   build_info.cpp
execute_process(COMMAND git describe --always --dirty --abbrev=10
                WORKING_DIRECTORY ${SOURCE} OUTPUT_VARIABLE PECIA_COMMIT
                OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
if(NOT PECIA_COMMIT)
  set(PECIA_COMMIT unknown)
endif()
configure_file(${HALF} ${OUTPUT} @ONLY)
