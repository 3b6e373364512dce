// Quotes words for the remote host. sshd passes one string to the user's login shell, so each word is quoted for that
// shell: every byte but NUL arrives unchanged through any POSIX shell, zsh included. csh expands `!` and ends a line
// inside quotes, and fish takes two backslashes for one, so words for an unknown shell must not contain `!`, `\` or
// newline: only a program's path and our own fixed words. All other data travels in the channel.
#pragma once
#include <string>
#include <vector>

namespace dslaunch::spawn {

// Throws UserError(64) for a word with a NUL, which a command line cannot contain.
std::string remote_command(const std::vector<std::string>& words);

}  // namespace dslaunch::spawn
