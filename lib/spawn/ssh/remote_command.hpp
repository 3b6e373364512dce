// Words for the far side. sshd hands one string to the user's login shell, so each word is quoted for it: every byte
// but NUL arrives unchanged through any POSIX shell, zsh included. csh expands `!` and ends a line inside quotes, and
// fish takes two backslashes for one, so words for an unknown shell hold none of `!`, `\` and newline: a program's path
// and words of our own.
// Everything else travels in the channel.
#pragma once
#include <string>
#include <vector>

namespace dslaunch::spawn {

// Throws UserError(64) for a word with a NUL, which no command line can hold.
std::string remote_command(const std::vector<std::string>& words);

}  // namespace dslaunch::spawn
