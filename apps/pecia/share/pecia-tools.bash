# shellcheck shell=bash
# Made by scripts/make-man from the commands' own parsers; do not edit.

_pecia_tool_words() { # WORDS
  mapfile -t COMPREPLY < <(compgen -W "$1" -- "$word")
}

_pecia_tool_files() { # -d: folders; -f: files and folders
  compopt -o filenames
  mapfile -t COMPREPLY < <(compgen "$1" -- "$word")
}

_pecia_import_gguf() {
  local word=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]}
  COMPREPLY=()
  case $previous in
    --dtype) _pecia_tool_words 'bf16 fp16 fp32'; return ;;
  esac
  if [[ $word == -* ]]; then _pecia_tool_words '-h --help --dtype --force --version'
  else _pecia_tool_files -f; fi
}
complete -F _pecia_import_gguf pecia-import-gguf

_pecia_pack() {
  local word=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]}
  COMPREPLY=()
  case $previous in
    --model) _pecia_tool_files -d; return ;;
    --output) _pecia_tool_files -f; return ;;
    --glob) :; return ;;
    --format) _pecia_tool_words 'auto text jsonl pdf epub html docx table csv'; return ;;
    --text-column) :; return ;;
    --id-column) :; return ;;
    --processes) :; return ;;
    --limit) :; return ;;
    --max-file-bytes) :; return ;;
    --encoding) :; return ;;
    --encoding-errors) _pecia_tool_words 'strict replace'; return ;;
    --instruction) :; return ;;
    --template) _pecia_tool_files -f; return ;;
    --examples) _pecia_tool_files -f; return ;;
    --question) :; return ;;
    --system) :; return ;;
    --chat-template-kwargs) :; return ;;
    --for) _pecia_tool_words 'qwen3-embedding qwen3-reranker'; return ;;
    --query) :; return ;;
    --produce) _pecia_tool_words 'text vector score rerank'; return ;;
    --continuation) :; return ;;
    --split-tokens) :; return ;;
    --split-at) _pecia_tool_words 'chapter heading paragraph'; return ;;
    --overlap) :; return ;;
    --max-tokens) :; return ;;
    --over-length) _pecia_tool_words 'warn error skip'; return ;;
    --shard-requests) :; return ;;
    --max-new-tokens) :; return ;;
    --temperature) :; return ;;
    --top-p) :; return ;;
    --seed) :; return ;;
    --stop) :; return ;;
    --served-model-name) :; return ;;
    --logprobs) :; return ;;
  esac
  if [[ $word == -* ]]; then _pecia_tool_words '-h --help --model --output --force --glob --format --text-column --id-column --processes --limit --max-file-bytes --strict --skip-bad --encoding --encoding-errors --instruction --template --examples --question --fork --system --chat-template-kwargs --no-chat --for --query --produce --continuation --split-tokens --split-at --overlap --max-tokens --over-length --shard-requests --max-new-tokens --temperature --top-p --seed --stop --served-model-name --logprobs --version'
  else _pecia_tool_files -f; fi
}
complete -F _pecia_pack pecia-pack

_pecia_report() {
  local word=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]}
  COMPREPLY=()
  case $previous in
    -o | --output) _pecia_tool_files -f; return ;;
    --png) _pecia_tool_files -d; return ;;
  esac
  if [[ $word == -* ]]; then _pecia_tool_words '-h --help -o --output --png --version'
  else _pecia_tool_files -f; fi
}
complete -F _pecia_report pecia-report

_pecia_summarize() {
  local word=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]}
  COMPREPLY=()
  case $previous in
    --job) _pecia_tool_files -f; return ;;
    --model) _pecia_tool_files -d; return ;;
    --output) _pecia_tool_files -d; return ;;
    --launch) :; return ;;
    --pecia) _pecia_tool_files -f; return ;;
    --set) :; return ;;
    --max-new-tokens) :; return ;;
    --context) :; return ;;
    --prompt-whole) _pecia_tool_files -f; return ;;
    --prompt-part) _pecia_tool_files -f; return ;;
    --prompt-merge) _pecia_tool_files -f; return ;;
    --glob) :; return ;;
    --text-column) :; return ;;
    --id-column) :; return ;;
    --processes) :; return ;;
  esac
  if [[ $word == -* ]]; then _pecia_tool_words '-h --help --job --model --output --launch --pecia --set --max-new-tokens --context --prompt-whole --prompt-part --prompt-merge --no-chat --glob --text-column --id-column --processes --fresh --version'
  else _pecia_tool_files -f; fi
}
complete -F _pecia_summarize pecia-summarize

_pecia_text() {
  local word=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]}
  COMPREPLY=()
  case $previous in
    --model) _pecia_tool_files -d; return ;;
    --prompts) _pecia_tool_files -d; return ;;
    --only) _pecia_tool_words 'partial done failed'; return ;;
    --output) _pecia_tool_files -f; return ;;
  esac
  if [[ $word == -* ]]; then _pecia_tool_words '-h --help --model --prompts --no-prompts --only --finish-reason --cite --jsonl --csv --vectors --scores --parquet --output --force --version'
  else _pecia_tool_files -f; fi
}
complete -F _pecia_text pecia-text

complete -W 'python books report --help --version' pecia-setup
