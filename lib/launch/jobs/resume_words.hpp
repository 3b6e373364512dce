// The command line that continues a recorded run. Pure.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "launch/records/job_record.hpp"

namespace dslaunch::launch {

// The words that started the run, without --overwrite, then its run directory, --resume auto (where the run has saved
// nothing, its own --resume), and `more`: of an option that is given twice, the last one counts. Throws UserError: 64
// for a job that is not a training run, 65 for a record without the words.
std::vector<std::string> resume_words(const JobRecord& record, bool has_checkpoints,
                                      const std::vector<std::string>& more);

// The command that repeats a start from its beginning: in a new run directory or, where the words name one, in place of
// the run there.
StartCommand from_scratch(const StartCommand& start);

// The words with a value for every "--env NAME" (without_values_of_env): none where a further word assigns NAME, else
// what `value_of` gives. Throws UserError(64) where it gives nothing.
using VariableLookup = std::function<std::optional<std::string>(const std::string& name)>;
std::vector<std::string> with_values_of_env(const std::vector<std::string>& words, const VariableLookup& value_of);

}  // namespace dslaunch::launch
