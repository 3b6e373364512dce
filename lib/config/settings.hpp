// The file and the command line, key by key: looks up names, resolves aliases and misplaced keys, checks types and
// bounds. Rules that involve several keys are in rules.hpp, the batch triple in batch_triple.hpp.
#pragma once
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "config/issue.hpp"
#include "config/key_spec.hpp"
#include "config/value.hpp"

namespace dslaunch::config {

// An option of the command line that sets a key; overrides the file.
struct Override {
  std::string key;    // dotted
  std::string value;  // as HJSON; text values are taken literally
  std::string origin = "command line";
};

struct Setting {
  const KeySpec* spec = nullptr;
  std::vector<std::string> parts;  // the components of the dotted key; a user-defined name may contain dots
  Value value;                     // of the kind in `spec`; for sections: null or an object without members
  std::string origin = "default";  // default, file, auto, solved, or an override's origin
  Position position;               // line 0 unless the key is from the file
  int order = 0;                   // position among the given settings; 0: not given
  bool deferred = false;           // "auto" that only the worker can resolve; `value` is the text auto
  bool is_low_priority = false;    // given under another name or in the wrong section: the right key takes precedence

  bool given() const { return order > 0; }
};

inline constexpr size_t kMaxIssues = 20;
inline constexpr size_t kMaxNames = 1000;  // limit on user-defined names in one section

class Settings {
 public:
  // `source` is the file's name in messages.
  explicit Settings(std::string source) : source_(std::move(source)) {}

  void take_document(const Value& root);
  void take_override(const Override& option);
  // Sets every key of the table that was not given to its default; rejects features that are not implemented yet, and
  // adds notes for keys without effect.
  void complete();

  // Null when there is no such key, or it is a key of a user-named section that was not given.
  const Setting* find(const std::string& path) const;
  // These require complete() and a key of the table of the matching kind; a null value reads as 0, false or "".
  const Setting& at(const std::string& path) const;
  bool given(const std::string& path) const;
  bool boolean(const std::string& path) const { return at(path).value.boolean; }
  int64_t integer(const std::string& path) const { return at(path).value.integer; }
  double number(const std::string& path) const { return at(path).value.number; }
  const std::string& text(const std::string& path) const { return at(path).value.text; }
  std::vector<std::string> texts(const std::string& path) const;
  // The name under which a key was given if it is not the key's own name; else its path.
  std::string written_as(const std::string& path) const;

  // Replaces the current value with a computed one.
  void solve(const std::string& path, Value value, std::string origin = "solved");
  // Leaves the value to the worker, as "auto" does.
  void defer(const std::string& path);
  // Adds an issue at the position of the key if it was given, else of its nearest enclosing section that was given.
  void add_error(Issue::Kind kind, const std::string& path, std::string message);
  bool has_error(const std::string& path) const;
  void note(const std::string& path, std::string message);
  void note(std::string message) { notes_.push_back(std::move(message)); }

  const std::map<std::string, Setting>& all() const { return settings_; }
  // At most kMaxIssues; for further issues only their number is stored.
  const std::vector<Issue>& issues() const { return issues_; }
  size_t num_unlisted_issues() const { return num_unlisted_issues_; }
  const std::vector<std::string>& notes() const { return notes_; }
  const std::string& source() const { return source_; }

 private:
  // The current key of the traversal: its path as given and as written in the table.
  struct At {
    std::string path, table_path;
    std::vector<std::string> parts;
  };
  struct Given {
    Position position;
    std::string name;  // as given, for messages
    bool is_low_priority = false;
  };

  At child(const At& section, const std::string& name) const;
  const KeySpec* spec_at(At& at, const At& section) const;
  void take_members(const At& section, const Value& object);
  void take_member(const At& section, const std::string& name, Position position, const Value& value);
  void take_alias(const At& written, const KeyAlias& alias, Position position, const Value& value);
  void take_misplaced_or_unknown(const At& section, const std::string& name, Position position, const Value& value);
  void unknown_key(const At& section, const std::string& name, Position position);
  bool list_is_full() const { return issues_.size() >= kMaxIssues; }
  void list(Issue issue);
  void assign(const At& at, const KeySpec& spec, const Given& given, const Value& value);
  void assign_section(const At& at, const KeySpec& spec, const Given& given, const Value& value);
  void assign_leaf(const At& at, const KeySpec& spec, const Given& given, const Value& value);
  void put(const At& at, const Given& given, Setting setting);
  void drop_below(const std::string& path);
  void drop_value_errors(const std::string& path);
  void add_issue(Issue::Kind kind, Position position, std::string key, std::string message);
  bool switched_off(const std::string& path) const;
  void note_comments();
  void note_keys_without_counterpart();
  void reject_unsupported();
  void note_ineffective_keys();
  void report_missing_required();

  std::string source_;
  std::string origin_ = "file";  // of the settings being read
  std::string message_source_;   // the source named in messages now; empty: source_
  int counter_ = 0;              // number of given settings
  int first_of_source_ = 0;      // settings with a larger order come from the source that is being read
  std::map<std::string, Setting> settings_;
  std::map<std::string, std::string> written_as_;  // path -> the name under which it was given
  std::vector<std::string> comment_keys_;          // paths
  std::set<std::string> listed_sections_;          // whose keys a message has listed
  std::vector<Issue> issues_;
  size_t num_unlisted_issues_ = 0;
  std::vector<std::string> notes_;
};

}  // namespace dslaunch::config
