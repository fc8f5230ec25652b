import * as jose from "jose";

const secret = new TextEncoder().encode("a secret of thirty-two bytes, or more");

async function refusal(promise: Promise<unknown>): Promise<string> {
  try {
    await promise;
    return "nothing";
  } catch (error) {
    const { code, name } = error as { code?: unknown; name: string };
    return typeof code === "string" ? code : name;
  }
}

export default async (task: { id: string }) => {
  const tokens = [];
  for (const alg of ["HS256", "HS384", "HS512"]) {
    const key = new TextEncoder().encode("x".repeat(64));
    const jwt = await new jose.SignJWT({ task: task.id }).setProtectedHeader({ alg }).setIssuedAt().setExpirationTime("1h").sign(key);
    tokens.push((await jose.jwtVerify(jwt, key)).payload.task);
  }
  const expired = await new jose.SignJWT({}).setProtectedHeader({ alg: "HS256" }).setExpirationTime(1).sign(secret);
  const known = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiIxMjM0NTY3ODkwIiwibmFtZSI6IkpvaG4gRG9lIiwiaWF0IjoxNTE2MjM5MDIyfQ.SflKxwRJSMeKKF2QT4fwpMeJf36POk6yJV_adQssw5c";
  return {
    tokens,
    known: (await jose.jwtVerify(known, new TextEncoder().encode("your-256-bit-secret"))).payload.name,
    forged: await refusal(jose.jwtVerify(known, secret)),
    expired: await refusal(jose.jwtVerify(expired, secret)),
    decoded: jose.decodeJwt(known).sub,
    thumbprint: await jose.calculateJwkThumbprint({ kty: "oct", k: "AyM1SysPpbyDfgZld3umj1qzKObwVMkoqQ-EstJQLr_T-1qS0gZH75aKtMN3Yj0iPS4hcgUuTwjAzZr1Z9CAow" }),
    rsa: await refusal(jose.generateKeyPair("RS256")),
    encryption: await refusal(new jose.EncryptJWT({}).setProtectedHeader({ alg: "dir", enc: "A256GCM" }).encrypt(new Uint8Array(32))),
  };
};
