#include "launch/jobs/resume_words.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/shell_words.hpp"

namespace dslaunch::launch {
namespace {

// Without this option, given as one word or two.
void erase_option(std::vector<std::string>& words, std::string_view option, bool takes_value) {
  for (auto word = words.begin(); word != words.end();) {
    if (!is_option(*word, option)) {
      ++word;
      continue;
    }
    const bool has_own_word = takes_value && word->find('=') == std::string::npos && word + 1 != words.end();
    word = words.erase(word, word + (has_own_word ? 2 : 1));
  }
}

bool is_repeatable(const std::string& word) {
  return is_option(word, "--set") || is_option(word, "--env") || is_option(word, "--env_file");
}

// The words without what `more` replaces, so that the command line stays one that a user could type.
void erase_replaced(std::vector<std::string>& words, const std::vector<std::string>& more) {
  for (auto word = more.begin(); word != more.end(); ++word) {
    if (!word->starts_with("--") || is_repeatable(*word)) continue;
    const bool has_value =
        word->find('=') != std::string::npos || (word + 1 != more.end() && !word[1].starts_with("--"));
    std::string name = word->substr(0, word->find('='));
    std::replace(name.begin() + 2, name.end(), '-', '_');
    erase_option(words, name, has_value);
  }
}

}  // namespace

std::vector<std::string> resume_words(const JobRecord& record, bool has_checkpoints,
                                      const std::vector<std::string>& more) {
  if (record.kind != JobKind::kRun) {
    const std::string command = record.start.words.empty() ? "" : ": " + command_text(record.start);
    throw UserError(ExitCode::kUsage, fmt::format("job {} is an exec job, and its program decides how it resumes; "
                                                  "start it again{}",
                                                  record.job_id, command));
  }
  if (record.start.words.empty()) {
    throw UserError(ExitCode::kBadInput, fmt::format("the record of job {} does not have its command line; give it "
                                                     "again with --run_dir {} --resume auto",
                                                     record.job_id, shell_word(record.run_dir)));
  }
  if (only_evaluates(record.start)) {
    throw UserError(ExitCode::kUsage, fmt::format("job {} was an evaluation (--eval_only), which has nothing to "
                                                  "resume; start it again: {}",
                                                  record.job_id, command_text(record.start)));
  }
  std::vector<std::string> words = record.start.words;
  erase_option(words, "--overwrite", false);
  erase_option(words, "--run_dir", true);
  words.insert(words.end(), {"--run_dir", record.run_dir});
  if (has_checkpoints || !has_option(words, "--resume")) {
    erase_option(words, "--resume", true);
    words.insert(words.end(), {"--resume", "auto"});
  }
  erase_replaced(words, more);
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

StartCommand from_scratch(const StartCommand& start) {
  StartCommand again = start;
  const auto resume = std::find_if(start.words.begin(), start.words.end(),
                                   [](const std::string& word) { return is_option(word, "--resume"); });
  const bool is_auto = resume != start.words.end() &&
                       (resume->ends_with("=auto") || (resume + 1 != start.words.end() && resume[1] == "auto"));
  if (is_auto) erase_option(again.words, "--resume", true);
  const bool is_allowed = has_option(again.words, "--resume") || has_option(again.words, "--overwrite");
  if (has_option(again.words, "--run_dir") && !is_allowed) again.words.emplace_back("--overwrite");
  return again;
}

std::vector<std::string> with_values_of_env(const std::vector<std::string>& words, const VariableLookup& value_of) {
  std::vector<std::string> out;
  std::vector<std::string> missing;
  const auto is_given = [&](const std::string& name) {
    return std::any_of(words.begin(), words.end(), [&](const auto& word) {
      return word.starts_with(name + "=") || (is_option(word, "--env") && word.ends_with(name + "="));
    });
  };
  for (auto word = words.begin(); word != words.end(); ++word) {
    const bool lacks_value = *word == "--env" && word + 1 != words.end() && word[1].find('=') == std::string::npos;
    if (!lacks_value) {
      out.push_back(*word);
      continue;
    }
    const std::string& name = *++word;
    if (is_given(name)) continue;
    if (const auto value = value_of(name)) {
      out.insert(out.end(), {"--env", fmt::format("{}={}", name, *value)});
    } else {
      missing.push_back(name);
    }
  }
  if (missing.empty()) return out;
  throw UserError(ExitCode::kUsage,
                  fmt::format("the run was started with --env {}, and its directory keeps no values, which may be "
                              "secrets: set {} in this shell, or give --env {}=VALUE",
                              fmt::join(missing, ", --env "), missing.size() == 1 ? "it" : "them", missing.front()));
}

}  // namespace dslaunch::launch
