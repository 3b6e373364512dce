// "did you mean": the known names nearest to a mistyped one, for options, config keys and hosts alike.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace dslaunch {

// Up to `max_count` names within a distance that a typo explains (a third of the length, at least 2, but 1 in names of
// three letters; a transposition counts one), nearest first. Case and '-' against '_' do not count as differences.
std::vector<std::string> nearest_names(std::string_view name, const std::vector<std::string>& known,
                                       size_t max_count = 1);

// " (did you mean 'x'?)" or " (did you mean 'x' or 'y'?)"; empty when nothing is near.
std::string did_you_mean(std::string_view name, const std::vector<std::string>& known, size_t max_count = 1);

}  // namespace dslaunch
