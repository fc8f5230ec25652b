package main

import (
	"os"
	"path/filepath"
)

// environment looks up a variable, as os.LookupEnv does. It is passed along, so that tests that run
// side by side can have one each.
type environment func(name string) (string, bool)

// get is the value of a variable, "" if it is not set.
func (e environment) get(name string) string {
	value, _ := e(name)
	return value
}

// cacheDir is this user's folder for what can be made again.
func (e environment) cacheDir() (string, error) {
	if dir := e.get("XDG_CACHE_HOME"); filepath.IsAbs(dir) {
		return dir, nil
	}
	return os.UserCacheDir()
}

// runtimeDir is this user's folder for what ends with the session: the cache folder where there is
// none.
func (e environment) runtimeDir() (string, error) {
	if dir := e.get("XDG_RUNTIME_DIR"); filepath.IsAbs(dir) {
		return dir, nil
	}
	return e.cacheDir()
}
