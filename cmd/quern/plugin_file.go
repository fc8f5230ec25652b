package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/quern-project/quern/plugins"
	"github.com/quern-project/quern/plugins/manifest"
	"github.com/quern-project/quern/runtime"
	"github.com/quern-project/quern/runtime/units"
)

// localPlugin is a plugin file with the manifest beside it.
type localPlugin struct {
	path, name   string
	binary       []byte
	manifestPath string
	manifest     manifest.Manifest
	unread       bool           // the manifest cannot be read
	files        *runtime.Files // that the manifest grants
	warm         []byte
	// refusals are what is wrong with the two files. load checks the module.
	refusals []runtime.Refusal
}

// readPlugin reads FILE and the manifest beside it, if there is one. It fails if there is no file to read; other faults
// become refusals.
func readPlugin(path string) (*localPlugin, error) {
	return readPluginWith(path, strings.TrimSuffix(path, manifest.ModuleSuffix)+manifest.Suffix)
}

// readPluginWith is readPlugin with a manifest that may lie elsewhere.
func readPluginWith(path, beside string) (*localPlugin, error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, usagef("no such file %q: name a %s file", path, manifest.ModuleSuffix)
	}
	if err != nil {
		return nil, usagef("read plugin: %w", err)
	}
	p := &localPlugin{path: path, name: strings.TrimSuffix(filepath.Base(beside), manifest.Suffix), manifestPath: beside}
	switch {
	case !info.Mode().IsRegular():
		p.refuse("it is not a regular file", path, "put a "+manifest.ModuleSuffix+" file in its place")
	case info.Size() > runtime.MaxModule:
		p.refuse(fmt.Sprintf("it has %d bytes, more than %s", info.Size(), units.FormatSize(runtime.MaxModule)), path, "build it without debug information, or split it")
	default:
		p.binary, err = os.ReadFile(path)
	}
	if err != nil {
		return nil, usagef("read plugin: %w", err)
	}
	p.manifest, err = plugins.LoadManifest(beside)
	if errors.Is(err, fs.ErrNotExist) {
		p.manifest, err = manifest.Default(p.name), nil
	}
	p.unread = err != nil
	if err == nil {
		p.files, p.warm, err = plugins.LoadFiles(beside, p.manifest)
	}
	var wrong *manifest.Error
	switch {
	case errors.As(err, &wrong):
		p.refusals = append(p.refusals, wrong.Refusals()...)
	case err != nil:
		p.refuse(err.Error(), beside, "make it a readable YAML file, or remove it")
	}
	return p, nil
}

func (p *localPlugin) refuse(what, where, remedy string) {
	p.refusals = append(p.refusals, runtime.Refusal{What: what, Where: where, Remedy: remedy})
}

// refusal is the error of a refused plugin; nil if nothing is wrong.
func (p *localPlugin) refusal() error {
	if len(p.refusals) == 0 {
		return nil
	}
	return refusedf("%s is refused: %w", p.path, &runtime.RefusedError{Refusals: p.refusals})
}

// load compiles the module and checks that the manifest fits it.
func (p *localPlugin) load(ctx context.Context, engine *runtime.Engine) (*runtime.Module, error) {
	module, err := engine.Load(ctx, p.binary)
	if err != nil || p.unread {
		return module, err
	}
	err = module.Admits(p.manifest.Limits.WithDefaults())
	if err == nil {
		err = p.manifest.CheckModule(p.manifestPath, module.Info())
	}
	if wrong, ok := errors.AsType[*manifest.Error](err); ok {
		err = &runtime.RefusedError{Refusals: wrong.Refusals()}
	}
	if err != nil {
		return nil, errors.Join(err, module.Close(ctx))
	}
	return module, nil
}
