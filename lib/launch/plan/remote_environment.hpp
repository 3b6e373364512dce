// What of the launcher's environment travels to other hosts, and what a virtual environment changes in it. Ranks of
// this machine inherit everything; on other hosts the login's own environment is the base. docs/launching.md says it to
// users.
#pragma once
#include <map>
#include <string>

namespace dslaunch::launch {

using Environment = std::map<std::string, std::string>;

// The variables of `inherited` that other hosts get: those that steer training and communication, by prefix. Never the
// ones that describe this machine or this login (PATH, HOME, CUDA_VISIBLE_DEVICES...). Pure.
Environment exported_environment(const Environment& inherited);

// The environment of a remote rank: `login` is what the agent found on its host, `sent` came with the job and wins.
// Pure.
Environment merged_environment(Environment login, const Environment& sent);

// Makes the virtual environment in `folder` the active one, as its bin/activate would: VIRTUAL_ENV, PATH (that of
// `env`, with folder/bin in front), no PYTHONHOME. Looks at this host's files: throws UserError(66) when folder/bin has
// no python.
void apply_venv(Environment& env, const std::string& folder);

// The folder of the virtual environment whose activation script this is. Throws UserError(64) for any other script:
// it would take a shell on every host to run it.
std::string venv_of_script(const std::string& script);

}  // namespace dslaunch::launch
