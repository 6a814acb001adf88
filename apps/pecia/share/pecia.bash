# shellcheck shell=bash
# Made by scripts/make-man from the command's own help; do not edit.

_pecia_words() { # nospace|space WORDS
  if [[ $1 == nospace ]]; then compopt -o nospace; fi
  mapfile -t COMPREPLY < <(compgen -W "$2" -- "$word")
}

_pecia_files() { # ENDING…: folders, and files of these endings
  local ending
  compopt -o filenames
  mapfile -t COMPREPLY < <(compgen -d -- "$word"
    for ending in "$@"; do compgen -f -X "!*.$ending" -- "$word"; done)
}

_pecia() {
  local word=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]}
  local keys='model.path= model.dtype= model.compute= model.wire= model.rope_scaling= model.load= model.replicate= model.prepack= input= output= backend= allow_gpu_sharing= topology= parallel.dp= parallel.pp= parallel.cp= parallel.elastic= parallel.scheduler= parallel.phases= parallel.answering= parallel.sp= parallel.tp= parallel.ep= parallel.prefill= parallel.ring= parallel.decode= parallel.shift_threshold= parallel.gather_threshold= attention.sparse= attention.geometry= attention.levels= attention.drop= attention.pipeline= attention.first_tokens= attention.objective= attention.decode= generation.max_new_tokens= generation.temperature= generation.top_k= generation.top_p= generation.min_p= generation.repetition_penalty= generation.presence_penalty= generation.frequency_penalty= generation.seed= generation.stop_token_ids= generation.stop= generation.ignore_eos= generation.schema= generation.regex= generation.choice= generation.drafts= generation.logprobs= generation.prompt_logprobs= produce= vector.pool= vector.normalize= vector.dtype= kv.dtype= kv.memory= kv.admission= kv.park= kv.keep= kv.save= batch.max_sequences= batch.max_batch_tokens= batch.order= batch.policy= batch.arrivals= batch.objective= batch.prefix_sharing= batch.limit= limits.over_length= limits.wall_time= limits.grace= limits.silence= limits.wait= limits.retries= report.trace= report.progress= report.peak= report.node_hour_price= reproducible= pipeline='
  COMPREPLY=()
  if ((COMP_CWORD == 1)); then
    _pecia_words space 'run tune plan inspect topology doctor -h --help --version'
    return
  fi
  case ${COMP_WORDS[1]} in
    run)
      case $previous in
        --set) _pecia_words nospace "$keys"; return ;;
        --model) _pecia_files; return ;;
        --input) :; return ;;
        --limit) :; return ;;
        --output) _pecia_files; return ;;
      esac
      if [[ $word == -* ]]; then _pecia_words space '-h --help --set --model --input --limit --output --fresh --retry-failed --rounds --validate --dry-run --print-default --print-output'
      else _pecia_files yaml yml json; fi ;;
    tune)
      case $previous in
        --calibration) :; return ;;
        --output) :; return ;;
        --set) _pecia_words nospace "$keys"; return ;;
        --drops) :; return ;;
        --deals) :; return ;;
        --rounds) :; return ;;
      esac
      if [[ $word == -* ]]; then _pecia_words space '-h --help --calibration --output --set --drops --deals --rounds --json'
      else _pecia_files yaml yml json; fi ;;
    plan)
      case $previous in
        --set) _pecia_words nospace "$keys"; return ;;
        --backend) :; return ;;
        --ranks) :; return ;;
        --model) :; return ;;
        --cluster) :; return ;;
        --gpu) :; return ;;
        --per-node) :; return ;;
        --request) :; return ;;
        --requests) :; return ;;
        --calibrate) :; return ;;
        --cluster-file) :; return ;;
        --trace) _pecia_files; return ;;
      esac
      if [[ $word == -* ]]; then _pecia_words space '-h --help --set --backend --ranks --model --cluster --gpu --per-node --request --requests --calibrate --cluster-file --trace --modes --papers --check --json'
      else _pecia_files yaml yml json; fi ;;
    inspect)
      case $previous in
        --interval) :; return ;;
      esac
      if [[ $word == -* ]]; then _pecia_words space '-h --help --json --watch --interval'
      else _pecia_files h5; fi ;;
    topology)
      case $previous in
        --dp) :; return ;;
        --cp) :; return ;;
        --sp) :; return ;;
        --tp) :; return ;;
        --file) :; return ;;
        --cluster-file) :; return ;;
      esac
      if [[ $word == -* ]]; then _pecia_words space '-h --help --dp --cp --sp --tp --file --measure --cluster-file --json'
      else :; fi ;;
    doctor)
      case $previous in
        --output) _pecia_files; return ;;
      esac
      if [[ $word == -* ]]; then _pecia_words space '-h --help --output --json'
      else :; fi ;;
  esac
}
complete -F _pecia pecia
