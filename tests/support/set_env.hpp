// A variable of this process's environment for the length of a scope.
#pragma once
#include <cstdlib>
#include <optional>
#include <string>

namespace dslaunch::test {

class SetEnv {
 public:
  SetEnv(const char* name, const std::string& value) : name_(name) {
    if (const char* before = std::getenv(name)) before_ = before;
    ::setenv(name, value.c_str(), 1);
  }
  ~SetEnv() {
    if (before_) {
      ::setenv(name_, before_->c_str(), 1);
    } else {
      ::unsetenv(name_);
    }
  }
  SetEnv(const SetEnv&) = delete;
  SetEnv& operator=(const SetEnv&) = delete;

 private:
  const char* name_;
  std::optional<std::string> before_;
};

}  // namespace dslaunch::test
