// The command line that continues a recorded run. Pure.
#pragma once
#include <string>
#include <vector>

#include "launch/records/job_record.hpp"

namespace dslaunch::launch {

// The words that started the run, without --overwrite, then its run directory, --resume auto (where the run has saved
// nothing, its own --resume), and `more`: of an option that is given twice, the last one counts. Throws UserError: 64
// for a job that is not a training run, 65 for a record without the words.
std::vector<std::string> resume_words(const JobRecord& record, bool has_checkpoints,
                                      const std::vector<std::string>& more);

// As a line for a shell, in any directory.
std::string command_text(const StartCommand& start);

// Whether the command that started the job only evaluates.
bool only_evaluates(const StartCommand& start);

}  // namespace dslaunch::launch
