// Data in formats that a run does not read (tables, text, images): an error with the tools/tokenize command that
// converts them. The launcher and the worker give the same message. Any thread.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace dslaunch {

// The keys of the job file's data section that decide how a file is read.
struct DataReading {
  std::string format = "auto";
  std::string dtype;    // of the tokens in a file without a header
  int64_t seq_len = 0;  // 0: not set
};

// `patterns` are paths and globs as the user wrote them; relative ones start at `directory`, or at the working
// directory. Throws UserError(65) if they name .jsonl, .json, .csv, .tsv, .parquet, .arrow or text files, directories
// of these or of images, a data set that datasets' save_to_disk wrote, or CIFAR's binary files. A run that says how it
// wants a file read (another `format` than "auto"; "uint8" tokens for text) is not stopped. Throws UserError(66) for a
// glob without a match.
void reject_raw_data(const std::vector<std::string>& patterns, const std::string& directory,
                     const DataReading& reading);

}  // namespace dslaunch
