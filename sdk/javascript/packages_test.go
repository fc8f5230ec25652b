package javascript_test

import (
	"testing"

	"github.com/quern-project/quern/runtime"
)

// TestPackages runs packages of npm that nobody here wrote.
func TestPackages(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ entry, input, want string }{
		{"zod.ts", `{"id":"9f4e1c52-3b1a-4c6e-8d2f-0a1b2c3d4e5f","email":"a@example.org","lines":[{"sku":"a","quantity":1}],"due":"2024-05-01"}`, `{"due":1714521600000,"lines":1}`},
		{"zod.ts", `{"id":"x","email":"a","lines":[]}`, `["id: Invalid uuid","email: Invalid email","lines: Array must contain at least 1 element(s)"]`},
		{
			"marked.js", "# Title\n\nSome *text* with `code` and a [link](https://example.org).\n\n| a | b |\n|---|--:|\n| 1 | 2 |\n",
			"<h1>Title</h1>\n<p>Some <em>text</em> with <code>code</code> and a <a href=\"https://example.org\">link</a>.</p>\n<table>\n<thead>\n<tr>\n<th>a</th>\n<th align=\"right\">b</th>\n</tr>\n</thead>\n<tbody><tr>\n<td>1</td>\n<td align=\"right\">2</td>\n</tr>\n</tbody></table>\n",
		},
		{
			"lodash.js", `{"people":[{"name":"bob","team":"a","age":3},{"name":"ada","team":"b","age":4},{"name":"cy","team":"a","age":5}]}`,
			`{"groups":{"a":8,"b":4},"names":["Ada","Bob","Cy"],"same":true,"text":"3 people, &lt;b&gt;","merged":{"a":{"b":1,"c":[1]}}}`,
		},
		{"dayjs.ts", `2024-02-29T10:00:00Z`, `["2024-03-29T10:00:00+00:00","Donnerstag, 29. Februar 2024",59,"3 hours ago","PT1H30M",true]`},
		{"ajv.js", `{"name":"Ada","age":36,"tags":["a"]}`, "valid"},
		{
			"ajv.js", `{"age":-1,"tags":["a","a"],"x":1}`,
			`[" must have required property 'name'"," must NOT have additional properties","/age must be >= 0","/tags must NOT have duplicate items (items ## 1 and 0 are identical)"]`,
		},
		{"jose.ts", "", `{"tokens":["task","task","task"],"known":"John Doe","forged":"ERR_JWS_SIGNATURE_VERIFICATION_FAILED","expired":"ERR_JWT_EXPIRED","decoded":"1234567890",` +
			`"thumbprint":"y_x3gCJnL6oKGBBIXScabduwxTVy2Wd2bzRVEUbdUzc","rsa":"NotSupportedError","encryption":"NotSupportedError"}`},
	} {
		t.Run(test.entry, func(t *testing.T) {
			t.Parallel()
			p := esbuild(t, "packages/"+test.entry)
			o := p.run(runtime.Call{TaskID: "task", Input: []byte(test.input)})
			if o.Kind != runtime.Complete || string(o.Output) != test.want {
				t.Errorf("%s: %s\n%s\nwant\n%s", o.Kind, o.Message, o.Output, test.want)
			}
		})
	}
}
