// Copies settings to the members that their rows are bound to.
#pragma once
#include <string>

#include "config/job_config.hpp"
#include "config/key_table.hpp"
#include "config/settings.hpp"

namespace dslaunch::config {

// Whether the key lies in a section that counts only if it is given, and is not.
bool is_in_absent_section(const Settings& settings, const KeySpec& row);

// Every bound member of the config; those that are derived from several keys keep their initializers. Requires
// settings without issues.
void fill(JobConfig& to, const Settings& settings);

// The members of one entry of a user-named section, from the keys that were given. `section`: its row's path;
// `name`: that of the entry.
void fill_entry(const void* struct_id, void* to, const Settings& settings, const std::string& section,
                const std::string& name);
template <class Entry>
void fill_entry(Entry& to, const Settings& settings, const std::string& section, const std::string& name) {
  fill_entry(&kStructId<Entry>, &to, settings, section, name);
}

}  // namespace dslaunch::config
