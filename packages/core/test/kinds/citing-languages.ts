/** Prompts that ask for citations, as programs write them in 15 languages. */
export interface CitingLanguage {
  readonly name: string;
  /** Asks to cite by number. */
  readonly asks: string;
  /** Stands in front of the sources, and in front of the question. */
  readonly sources: string;
  readonly question: string;
  /** One source. */
  readonly noun: string;
  /** How a model says that a source says so. */
  cite(label: string): string;
}

export const CITING_LANGUAGES: readonly CitingLanguage[] = [
  {
    name: 'English',
    asks: 'Back up every claim with the number of its source, such as [1].',
    sources: 'Sources:',
    question: 'Question',
    noun: 'Source',
    cite: (n) => `according to source ${n}`,
  },
  {
    name: 'German',
    asks: 'Belege jede Aussage mit der Nummer ihrer Quelle, zum Beispiel [1].',
    sources: 'Quellen:',
    question: 'Frage',
    noun: 'Quelle',
    cite: (n) => `laut Quelle ${n}`,
  },
  {
    name: 'French',
    asks: 'Indiquez pour chaque phrase le numéro de la source, par exemple [1].',
    sources: 'Sources :',
    question: 'Question',
    noun: 'Source',
    cite: (n) => `selon la source n° ${n}`,
  },
  {
    name: 'Spanish',
    asks: 'Indica en cada frase el número de la fuente, por ejemplo [1].',
    sources: 'Fuentes:',
    question: 'Pregunta',
    noun: 'Fuente',
    cite: (n) => `según la fuente ${n}`,
  },
  {
    name: 'Portuguese',
    asks: 'Indique em cada frase o número da fonte, por exemplo [1].',
    sources: 'Fontes:',
    question: 'Pergunta',
    noun: 'Fonte',
    cite: (n) => `segundo a fonte ${n}`,
  },
  {
    name: 'Italian',
    asks: 'Indica per ogni frase il numero della fonte, per esempio [1].',
    sources: 'Fonti:',
    question: 'Domanda',
    noun: 'Fonte',
    cite: (n) => `secondo la fonte ${n}`,
  },
  {
    name: 'Dutch',
    asks: 'Noem bij elke zin het nummer van de bron, bijvoorbeeld [1].',
    sources: 'Bronnen:',
    question: 'Vraag',
    noun: 'Bron',
    cite: (n) => `volgens bron ${n}`,
  },
  {
    name: 'Polish',
    asks: 'Przy każdym zdaniu podaj numer źródła, na przykład [1].',
    sources: 'Źródła:',
    question: 'Pytanie',
    noun: 'Źródło',
    cite: (n) => `według źródła ${n}`,
  },
  {
    name: 'Turkish',
    asks: 'Her cümlede kaynağın numarasını belirt, örneğin [1].',
    sources: 'Kaynaklar:',
    question: 'Soru',
    noun: 'Kaynak',
    cite: (n) => `kaynak ${n} böyle diyor`,
  },
  {
    name: 'Russian',
    asks: 'Указывай после каждого предложения номер источника, например [1].',
    sources: 'Источники:',
    question: 'Вопрос',
    noun: 'Источник',
    cite: (n) => `согласно источнику ${n}`,
  },
  {
    name: 'Arabic',
    asks: 'اذكر رقم المصدر بعد كل جملة، مثلا [1].',
    sources: 'المصادر:',
    question: 'السؤال',
    noun: 'المصدر',
    cite: (n) => `وفقا للمصدر ${n}`,
  },
  {
    name: 'Hindi',
    asks: 'हर वाक्य के बाद स्रोत की संख्या लिखें, जैसे [1]।',
    sources: 'स्रोत:',
    question: 'प्रश्न',
    noun: 'स्रोत',
    cite: (n) => `स्रोत ${n} के अनुसार`,
  },
  {
    name: 'Chinese',
    asks: '每句话后请注明来源编号，例如[1]。',
    sources: '来源：',
    question: '问题',
    noun: '来源',
    cite: (n) => `根据来源${n}`,
  },
  {
    name: 'Japanese',
    asks: '各文の後に出典の番号を示してください。例：[1]',
    sources: '出典：',
    question: '質問',
    noun: '出典',
    cite: (n) => `出典${n}によると`,
  },
  {
    name: 'Korean',
    asks: '각 문장 뒤에 출처 번호를 적어 주세요. 예: [1]',
    sources: '출처:',
    question: '질문',
    noun: '출처',
    cite: (n) => `출처 ${n}에 따르면`,
  },
];
