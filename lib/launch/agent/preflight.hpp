// What must be equal on every host of a job, checked on each host before any rank starts: the worker's version with its
// LibTorch, and the model.
#pragma once
#include <cstdint>
#include <map>
#include <string>

#include "launch/channel/message.hpp"

namespace dslaunch::launch {

// Of this host's model, for comparison on the other hosts. Throws UserError(65, 66).
Preflight make_preflight(const std::string& model);

// The checksums of all records in a saved model's archive, combined into one number: two files with equal fingerprints
// hold the same model. Reads the end of the file only. Throws UserError(65) for a file that is not an archive.
uint64_t model_fingerprint(const std::string& path);

// Throws UserError(69) for another version or a worker that does not start here, 66 for a missing and 65 for a
// different model. `worker`, `env`: the program that the ranks run, and the environment that they start in.
void check_preflight(const Preflight& preflight, const std::string& worker,
                     const std::map<std::string, std::string>& env);

}  // namespace dslaunch::launch
