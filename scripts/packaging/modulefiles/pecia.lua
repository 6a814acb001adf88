-- SPDX-License-Identifier: Apache-2.0
-- Lmod's module of an installed tree. It finds the tree by its own place in it, so the tree may be moved.
help([[Pecia runs language models over very long documents as offline batches.
pecia --help lists its commands; pecia doctor says what will hurt a run here.]])
whatis("Name: pecia")
whatis("Version: " .. myModuleVersion())
whatis("Description: Long-context language-model inference as offline batches on HPC clusters")

local prefix = myFileName():match("^(.*)/share/pecia/modulefiles/")
if not prefix then
  LmodError("this file belongs in PREFIX/share/pecia/modulefiles/pecia; call module use on that folder's parent")
end
conflict("pecia")
prepend_path("PATH", pathJoin(prefix, "bin"))
setenv("PECIA_HOME", prefix)
