// Asks for a caption in several languages concurrently, and for a picture of each:
//   flowcell test flows/script/captions.flow.js --simulate img,agent -i topic=rain

export function init(flow) {
  flow.title("Captions");
  flow.inText("topic", "Topic");
  flow.inJson("languages", "Languages", { optional: true });
  flow.outJson("captions", "Captions by language");
  flow.outImgs("pictures", "A picture of each");
}

export async function run(services) {
  const { topic, languages = ["English", "Italian"] } = services.inputs;
  const answers = await Promise.all(
    languages.map((language) => services.agent(`A caption about ${topic}, in ${language}`)),
  );
  const captions = Object.fromEntries(languages.map((language, index) => [language, answers[index].value]));
  services.outputs("captions", captions);
  services.outputs("pictures", await Promise.all(answers.map(({ value }) => services.img([], value, { size: "256x256" }))));
  return languages.length;
}
