// Compares the files that a run takes code and values from (the model, a loss, metrics) with the CRC-32 that each zip
// record has in its archive, beside the set-up of the run: neither PyTorch's reader nor a memory map looks at them, and
// a flipped bit in a weight trains to other numbers without a word. One thread of its own.
#pragma once
#include <future>
#include <string>
#include <vector>

#include "config/job_config.hpp"

namespace dslaunch::runtime::engine::setup {

// The ranks of a host share the records, so that each byte is read once on each host.
struct VerificationShare {
  int index = 0, count = 1;
};

class FileVerification {
 public:
  // Starts at once. Files that do not exist or are not archives are left to their readers.
  explicit FileVerification(std::vector<std::string> paths, const VerificationShare& share = {});

  // Waits for the end. Throws UserError(65) that names the first damaged record, and the parameter in it.
  void finish();

 private:
  struct Damage {
    std::string path, record;
  };
  static std::vector<Damage> verify(const std::vector<std::string>& paths, const VerificationShare& share);

  std::future<std::vector<Damage>> damages_;  // its destructor waits
};

// The model, and what the config names beside it.
std::vector<std::string> files_to_verify(const std::string& model_path, const config::JobConfig& config);

}  // namespace dslaunch::runtime::engine::setup
