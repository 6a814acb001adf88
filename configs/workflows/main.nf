// SPDX-License-Identifier: Apache-2.0
// Every folder of books/ becomes a folder of texts/, by Nextflow:
//
//     nextflow run configs/workflows/main.nf -resume
//
// from the repository root. Parameters name what differs: --model, --pecia, --launcher, --question. A run keeps its
// results in runs/, outside Nextflow's work folders, so an attempt goes on where the one before it stopped.
params.model = "models/SmolLM2-135M-Instruct"
params.pecia = "build/release/bin/pecia"
params.launcher = "mpirun -np 2 --bind-to none"
params.question = "Summarize the text above in two or three sentences."

// Code 3 of pecia-pack: packed, without the bad files that it has named.
process pack {
  input:
    path books
  output:
    tuple val(books.name), path("${books.name}.h5")
  script:
    """
    cd ${launchDir}
    scripts/pecia-pack --model ${params.model} --output \$OLDPWD/${books.name}.h5 --split-tokens 1500 \
      --instruction '${params.question}' \$OLDPWD/${books} || [ \$? -eq 3 ]
    """
}

process answer {
  cpus 2
  errorStrategy 'retry'
  maxRetries 3
  input:
    tuple val(shelf), path(prompts)
  output:
    val shelf
  script:
    """
    cd ${launchDir}
    ${params.launcher} ${params.pecia} run configs/one-node.yaml --set model.path=\$(realpath ${params.model}) \
      --set input=[\$OLDPWD/${prompts}] --set output=\$PWD/runs/${shelf}
    """
}

process text {
  input:
    val shelf
  script:
    """
    cd ${launchDir}
    scripts/pecia-text runs/${shelf} --model ${params.model} --output texts/${shelf} --force \
      || [ \$? -eq 3 ]
    """
}

workflow {
  channel.fromPath("books/*", type: "dir") | pack | answer | text
}
