// "did you mean": the known names nearest to a mistyped one, for options, config keys, hosts and files alike.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace dslaunch {

// Up to `max_count` names within a distance that a typo explains (a third of the letters, but 1 in names of fewer
// than six; a transposition counts one), nearest first. Case and '-' against '_' do not count as differences.
std::vector<std::string> nearest_names(std::string_view name, const std::vector<std::string>& known,
                                       size_t max_count = 1);

// " (did you mean 'x'?)" or " (did you mean 'x' or 'y'?)"; empty when nothing is near.
std::string did_you_mean(std::string_view name, const std::vector<std::string>& known, size_t max_count = 1);

// The same for a path that does not exist: the entry of its directory, or of the nearest directory above it that
// exists, whose name is near and with which the path exists. Reads at most 10,000 entries.
std::string did_you_mean_file(const std::string& path);
// "No such file or directory (did you mean 'train.npy'?)" after open() has failed.
std::string describe_open_error(const std::string& path, int error_number);

}  // namespace dslaunch
