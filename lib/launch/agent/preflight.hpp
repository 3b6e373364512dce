// What every host of a job must have alike, checked on each before any rank starts: the worker's version with its
// LibTorch, and the model.
#pragma once
#include <cstdint>
#include <map>
#include <string>

#include "launch/channel/message.hpp"

namespace dslaunch::launch {

// Of this host's model, for comparison elsewhere. Throws UserError(65, 66).
Preflight make_preflight(const std::string& model);

// The checksums that a saved model's archive carries of all its records, in one number: two files with the same one
// hold the same model. Reads the end of the file only. Throws UserError(65) for something else than an archive.
uint64_t model_fingerprint(const std::string& path);

// Throws UserError(69) for another version or a worker that does not start here, 66 for a missing and 65 for a
// different model. `worker`, `env`: the program that ranks are, and the environment that they start in.
void check_preflight(const Preflight& preflight, const std::string& worker,
                     const std::map<std::string, std::string>& env);

}  // namespace dslaunch::launch
