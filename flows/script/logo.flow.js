// Puts a logo into a photo. To try it without a service for images:
//   flowcell test flows/script/logo.flow.js --simulate img -i 'logo={"kind":"file","fileId":"a"}' -i 'photo={"kind":"file","fileId":"b"}'

function setup(flow) {
  flow.title("Logo overlay");
  flow.inImg("logo", "Logo");
  flow.inImg("photo", "Photo");
  flow.outImgs("result", "Output");
}

export async function run(services) {
  const logo = services.inputs.logo; // { kind: "file", fileId }
  const photo = services.inputs.photo;
  const prompt = "Blend the logo into the photo";

  const result = await services.img([logo, photo], prompt);
  services.outputs("result", result);
}
