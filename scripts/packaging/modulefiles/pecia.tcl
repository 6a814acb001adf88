#%Module1.0
# SPDX-License-Identifier: Apache-2.0
# The module of an installed tree for Environment Modules. It finds the tree by its own place in it, so the tree may be
# moved. Lmod takes the .lua file beside it.
proc ModulesHelp {} {
  puts stderr "Pecia runs language models over very long documents as offline batches."
  puts stderr "pecia --help lists its commands; pecia doctor says what will hurt a run here."
}
module-whatis "Long-context language-model inference as offline batches on HPC clusters"

if {![regexp {^(.*)/share/pecia/modulefiles/} $ModulesCurrentModulefile all prefix]} {
  error "this file belongs in PREFIX/share/pecia/modulefiles/pecia; call module use on that folder's parent"
}
conflict pecia
prepend-path PATH $prefix/bin
setenv PECIA_HOME $prefix
