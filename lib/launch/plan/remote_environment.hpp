// Which variables of the launcher's environment are sent to other hosts, and what a virtual environment changes. Ranks
// of this machine inherit everything; on other hosts the login's own environment is the base. User documentation:
// docs/launching.md.
#pragma once
#include <map>
#include <string>

namespace dslaunch::launch {

using Environment = std::map<std::string, std::string>;

// The variables of `inherited` that other hosts get: those that control training and communication, selected by prefix.
// Never those that describe this machine or this login (PATH, HOME, CUDA_VISIBLE_DEVICES...). Pure.
Environment exported_environment(const Environment& inherited);

// The environment of a remote rank: `login` is the agent's environment on its host; `sent` came with the job and
// overrides it. Pure.
Environment merged_environment(Environment login, const Environment& sent);

// Activates the virtual environment in `dir` as its bin/activate would: sets VIRTUAL_ENV and PATH (folder/bin, then
// the PATH of `env`), removes PYTHONHOME. Reads this host's file system: throws UserError(66) when folder/bin has no
// python.
void apply_venv(Environment& env, const std::string& dir);

// The directory of the virtual environment whose activation script this is. Throws UserError(64) for any other script:
// it would need a shell on every host.
std::string venv_of_script(const std::string& script);

}  // namespace dslaunch::launch
