// An issuer for the tests of the sign-in, with the real `oidc-provider`. Its argument is the module.
//
// POST /test/setup { clients, people, keys } makes the issuer anew: `people` has the claims of each person by name, and
// `keys` the algorithm and the id of each key. POST /test/person { name } says who sits at the keyboard: that person is
// signed in without a form, and agrees.
import { createServer } from "node:http";
import { generateKeyPairSync } from "node:crypto";

const { default: Provider } = await import(process.argv[2]);

const kinds = {
  RS256: ["rsa", { modulusLength: 2048 }],
  PS256: ["rsa", { modulusLength: 2048 }],
  ES256: ["ec", { namedCurve: "P-256" }],
  EdDSA: ["ed25519", {}],
};
const made = new Map();
let provider;
let callback;
let people = {};
let person;

function key({ alg, kid }) {
  if (!made.has(kid)) {
    const pair = generateKeyPairSync(...kinds[alg]);
    made.set(kid, { ...pair.privateKey.export({ format: "jwk" }), alg, kid, use: "sig" });
  }
  return made.get(kid);
}

async function interact(request, response) {
  const { prompt, params, grantId, session } = await provider.interactionDetails(request, response);
  if (prompt.name === "login") {
    const result = people[person] ? { login: { accountId: person } } : { error: "access_denied" };
    return provider.interactionFinished(request, response, result);
  }
  const grant = grantId
    ? await provider.Grant.find(grantId)
    : new provider.Grant({ accountId: session.accountId, clientId: params.client_id });
  grant.addOIDCScope(params.scope);
  return provider.interactionFinished(request, response, { consent: { grantId: await grant.save() } });
}

function setup(issuer, wanted) {
  ({ people } = wanted);
  provider = new Provider(issuer, {
    clients: wanted.clients,
    jwks: { keys: wanted.keys.map(key) },
    cookies: { keys: ["a key of tests"] },
    claims: { openid: ["sub", "groups", "email", "email_verified", "realm_access"] },
    conformIdTokenClaims: false,
    enabledJWA: { idTokenSigningAlgValues: ["RS256", "PS256", "ES256", "EdDSA", "Ed25519"] },
    features: { devInteractions: { enabled: false } },
    interactions: { url: (_, interaction) => `/interaction/${interaction.uid}` },
    findAccount: (_, id) => people[id] && { accountId: id, claims: () => ({ sub: id, ...people[id] }) },
    pkce: { required: () => true },
  });
  provider.on("server_error", (_, error) => console.error(error));
  callback = provider.callback();
}

async function body(request) {
  let text = "";
  for await (const piece of request) text += piece;
  return JSON.parse(text);
}

const server = createServer(async (request, response) => {
  try {
    if (request.url === "/test/setup") {
      setup(`http://${request.headers.host}`, await body(request));
      return response.end("{}");
    }
    if (request.url === "/test/person") {
      person = (await body(request)).name;
      return response.end("{}");
    }
    if (request.url.startsWith("/interaction/")) return await interact(request, response);
    return callback(request, response);
  } catch (error) {
    console.error(error);
    response.statusCode = 500;
    response.end(String(error));
  }
});
server.listen(0, "127.0.0.1", () => console.log(`listening on ${server.address().port}`));
