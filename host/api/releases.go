package api

import (
	"context"
	"fmt"
	"net/http"

	"github.com/quern-project/quern/host/admin"
	"github.com/quern-project/quern/sdk/queue/release"
)

// InPlugin has the path parameters of every operation on the releases of a plugin.
type InPlugin struct {
	InTenant
	Plugin string `path:"plugin" minLength:"1" maxLength:"128"`
}

// InRelease has the path parameters of every operation on a release.
type InRelease struct {
	InPlugin
	Number int `path:"number" minimum:"0"`
}

// FindPieces asks which pieces of a release are missing.
type FindPieces struct {
	InTenant
	Body struct {
		Sizes map[string]int64 `json:"sizes" doc:"The bytes of each piece, by its SHA-256 in hex. A piece is a MiB of a file, or its end."`
	}
}

// MissingPieces lists pieces that must be put.
type MissingPieces struct {
	Missing []string `json:"missing"`
}

// PutPiece has a piece of a release.
type PutPiece struct {
	InTenant
	Piece   string `path:"piece" maxLength:"64" doc:"The SHA-256 of the body, in hex."`
	RawBody []byte `contentType:"application/octet-stream"`
}

// PushRelease has a release whose pieces were put.
type PushRelease struct {
	InPlugin
	Body struct {
		Version string         `json:"version,omitempty" maxLength:"128" doc:"Of the manifest."`
		Files   []release.File `json:"files" minItems:"1" maxItems:"256" doc:"The module NAME.wasm, the manifest NAME.yaml if there is one, and the files that it names."`
		Note    string         `json:"note,omitempty" maxLength:"1024" doc:"What is new."`
		Queues  []string       `json:"queues,omitempty" maxItems:"1000" doc:"Those that the plugin serves."`
		// Share is nil for a release that is to serve.
		Share *release.Share `json:"share,omitempty" doc:"Makes it a canary: a release that gets a share of the tasks."`
		// Signatures are those of release.Release.
		Signatures []string `json:"signatures,omitempty" maxItems:"8" doc:"Signatures of minisign or cosign."`
		Artifact   string   `json:"artifact,omitempty" maxLength:"512" doc:"The artifact in an OCI registry that has the files: oci://HOST/REPOSITORY@sha256:DIGEST. Without it, the files are in pieces that were put."`
	}
}

// HaltRelease says why a canary is halted.
type HaltRelease struct {
	InRelease
	Body struct {
		Reason string `json:"reason" minLength:"1" maxLength:"1024" doc:"For people."`
	}
}

func (s *service) describeReleases() {
	find := acting(Admin, http.MethodPost, "/tenants/{tenant}/pieces", "find-pieces",
		"Ask which pieces of files of a release must be put before the release is pushed. They are kept for an hour")
	find.traffic = true // the push is in the audit log
	add(s, find, func(ctx context.Context, in *FindPieces) (*Of[MissingPieces], error) {
		missing, err := s.tenants[in.Tenant].Releases("").MissingPieces(ctx, in.Body.Sizes)
		return &Of[MissingPieces]{MissingPieces{missing}}, err
	})
	put := acting(Admin, http.MethodPut, "/tenants/{tenant}/pieces/{piece}", "put-piece",
		"Store a piece that find-pieces lists as missing. May be repeated")
	put.traffic, put.maxBody = true, release.PieceBytes
	add(s, put, func(ctx context.Context, in *PutPiece) (*struct{}, error) {
		return nil, s.tenants[in.Tenant].Releases("").PutPiece(ctx, in.Piece, in.RawBody)
	})
	type showPiece struct {
		InTenant
		Piece string `path:"piece" maxLength:"64" doc:"The SHA-256 of the piece, in hex."`
	}
	add(s, revealing("/tenants/{tenant}/pieces/{piece}", "show-piece", "The bytes of a piece of a file of a release"),
		func(ctx context.Context, in *showPiece) (*Bytes, error) {
			if err := s.reserve(ctx, valueAnswer(release.PieceBytes)); err != nil {
				return nil, err
			}
			data, err := s.tenants[in.Tenant].Releases("").Piece(ctx, in.Piece)
			return raw(data), err
		})
	const path = "/tenants/{tenant}/plugins/{plugin}/releases"
	add(s, looking(path, "list-releases", "List the releases of a plugin that are kept, newest first"),
		func(ctx context.Context, in *InPlugin) (*ListOf[release.Release], error) {
			return listed(s.tenants[in.Tenant].Releases(in.Plugin).List(ctx))
		})
	add(s, looking("/tenants/{tenant}/plugins/{plugin}/trial", "show-trial",
		"Show how tasks of the plugin's canary ended, beside those of the release that serves, each with its first run"),
		func(ctx context.Context, in *InPlugin) (*Of[admin.Trial], error) {
			trial, err := s.tenants[in.Tenant].Releases(in.Plugin).Trial(ctx)
			return &Of[admin.Trial]{trial}, err
		})
	add(s, acting(Admin, http.MethodPost, path, "push-release",
		"Make all hosts of the tenant serve a release whose pieces were put, or whose files are in a registry, or give it a share of the tasks. It replaces a canary. "+
			"May be repeated: what serves already changes nothing"),
		func(ctx context.Context, in *PushRelease) (*Of[release.Release], error) {
			r, err := s.tenants[in.Tenant].Releases(in.Plugin).PushRelease(ctx, release.Release{
				Plugin: in.Plugin, Version: in.Body.Version, Files: in.Body.Files, Note: in.Body.Note,
				Signatures: in.Body.Signatures, Queues: in.Body.Queues, Artifact: in.Body.Artifact,
				By: principal(ctx).Name,
			}, in.Body.Share)
			if err == nil {
				callerOf(ctx).detail = fmt.Sprintf("release=%d version=%s digest=%s", r.Number, r.Version, r.Digest())
				if r.Stage != nil {
					callerOf(ctx).detail += " canary=" + r.Stage.Share.String()
				}
				if r.Artifact != "" {
					callerOf(ctx).detail += " artifact=" + r.Artifact
				}
			}
			return &Of[release.Release]{r}, err
		})
	add(s, acting(Admin, http.MethodPost, path+"/{number}/serve", "serve-release",
		"Make hosts serve another release; number 0 is the newest one before the one that serves, without those rolled back"),
		func(ctx context.Context, in *InRelease) (*Of[release.Release], error) {
			r, err := s.tenants[in.Tenant].Releases(in.Plugin).Serve(ctx, in.Number)
			if err == nil {
				callerOf(ctx).detail = fmt.Sprintf("release=%d", r.Number)
			}
			return &Of[release.Release]{r}, err
		})
	staged := func(ctx context.Context, detail string, r release.Release, err error) (*Of[release.Release], error) {
		if err == nil {
			callerOf(ctx).detail = fmt.Sprintf("release=%d%s", r.Number, detail)
		}
		return &Of[release.Release]{r}, err
	}
	add(s, acting(Admin, http.MethodPost, path+"/{number}/promote", "promote-release",
		"Make hosts serve the canary for all tasks; number 0 is whichever release is the canary"),
		func(ctx context.Context, in *InRelease) (*Of[release.Release], error) {
			r, err := s.tenants[in.Tenant].Releases(in.Plugin).Promote(ctx, in.Number)
			return staged(ctx, "", r, err)
		})
	add(s, acting(Admin, http.MethodPost, path+"/{number}/halt", "halt-release",
		"End the canary, which gets no more tasks; number 0 is whichever release is the canary"),
		func(ctx context.Context, in *HaltRelease) (*Of[release.Release], error) {
			r, err := s.tenants[in.Tenant].Releases(in.Plugin).Halt(ctx, in.Number, in.Body.Reason)
			return staged(ctx, " reason="+in.Body.Reason, r, err)
		})
	add(s, acting(Admin, http.MethodDelete, path+"/{number}", "delete-release",
		"Delete a release that does not serve; number 0: all of the plugin, which hosts then serve no longer"),
		func(ctx context.Context, in *InRelease) (*struct{}, error) {
			callerOf(ctx).detail = fmt.Sprintf("release=%d", in.Number)
			return nil, s.tenants[in.Tenant].Releases(in.Plugin).Delete(ctx, in.Number)
		})
	freeze := func(name, summary string, frozen bool) {
		add(s, acting(Admin, http.MethodPost, "/tenants/{tenant}/plugins/{plugin}/"+name, name+"-plugin", summary),
			func(ctx context.Context, in *InPlugin) (*struct{}, error) {
				return nil, s.tenants[in.Tenant].Releases(in.Plugin).Freeze(ctx, frozen)
			})
	}
	freeze("freeze", "Refuse pushes of a plugin that has releases; a rollback is possible", true)
	freeze("thaw", "Allow pushes of a frozen plugin again", false)
}
