#include <algorithm>

#include "completion.hpp"

namespace dslaunch::launcher {
namespace {

// bash replaces what follows the last '=' or ':' of the word, so the candidates lose what is in front of it. What ends
// in
// '=' or '.' goes on without a blank. Without a candidate bash completes file names.
constexpr const char* kBash = R"(# bash completion of dslaunch: source <(dslaunch completion bash)
_dslaunch() {
  local line=${COMP_LINE:0:COMP_POINT} word kept= candidate
  word=${line##*[[:space:]]}
  [[ $word == *[=:]* && $COMP_WORDBREAKS == *=* ]] && kept=${word%"${word##*[=:]}"}
  COMPREPLY=()
  while IFS= read -r candidate; do
    COMPREPLY+=("${candidate#"$kept"}")
  done < <("${COMP_WORDS[0]/#\~/$HOME}" complete "$line" 2>/dev/null)
  if [[ ${#COMPREPLY[@]} == 1 && ${COMPREPLY[0]} == *[=.] ]]; then compopt -o nospace; fi
}
complete -o default -F _dslaunch dslaunch
)";

constexpr const char* kZsh = R"(#compdef dslaunch
# zsh completion of dslaunch: dslaunch completion zsh > DIRECTORY_OF_FPATH/_dslaunch
_dslaunch() {
  local line="${(j: :)words[1,CURRENT-1]} $PREFIX" each
  local -a texts shown open_texts open_shown
  for each in "${(@f)$(${(Q)words[1]/#\~/$HOME} complete --describe "$line" 2>/dev/null)}"; do
    [[ -n $each ]] || continue
    if [[ ${each%%$'\t'*} == *[=.] ]]; then
      open_texts+=("${each%%$'\t'*}") open_shown+=("${each/$'\t'/  -- }")
    else
      texts+=("${each%%$'\t'*}") shown+=("${each/$'\t'/  -- }")
    fi
  done
  if (( ${#texts} + ${#open_texts} == 0 )); then
    _files
    return
  fi
  (( ${#texts} )) && compadd -Q -l -d shown -- "${texts[@]}"
  (( ${#open_texts} )) && compadd -Q -S '' -l -d open_shown -- "${open_texts[@]}"
}
if [[ ${funcstack[1]} == _dslaunch ]]; then _dslaunch "$@"; else compdef _dslaunch dslaunch; fi
)";

constexpr const char* kFish =
    R"(# fish completion of dslaunch: dslaunch completion fish > ~/.config/fish/completions/dslaunch.fish
function __dslaunch_complete
    set -l words (commandline -opc)
    set -l found ($words[1] complete --describe (commandline -cp) 2>/dev/null)
    if test (count $found) -gt 0
        printf '%s\n' $found
    else
        __fish_complete_path (commandline -ct)
    end
end
complete -c dslaunch -f -a '(__dslaunch_complete)'
)";

}  // namespace

const std::vector<CompletionScript>& completion_scripts() {
  static const std::vector<CompletionScript> all{{"bash", kBash}, {"zsh", kZsh}, {"fish", kFish}};
  return all;
}

const CompletionScript* find_completion_script(std::string_view shell) {
  const auto& all = completion_scripts();
  const auto found = std::find_if(all.begin(), all.end(), [&](const auto& script) { return script.name == shell; });
  return found == all.end() ? nullptr : &*found;
}

}  // namespace dslaunch::launcher
